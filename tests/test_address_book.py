"""The address book against an enumeration of all its texts."""

import itertools
import math

import pytest
import torch

from src.texts.address_book import AddressBook

BOOK = AddressBook(names=3, houses=2, zipf=1.5)


def enumerated(pairs):
    """{text: probability}, of all texts of so many pairs."""
    found = {}
    for homes in itertools.product(range(2), repeat=3):
        for names in itertools.product(range(3), repeat=pairs):
            text = tuple((name, homes[name]) for name in names)
            prob = math.prod(float(BOOK.probs[name]) for name in names) / 2**3
            found[text] = found.get(text, 0.0) + prob
    return found


@pytest.mark.parametrize("last", [0, 1, 2, 3])
def test_the_floor_is_the_entropy_of_the_enumerated_language(last):
    """H(house | its name, the last m pairs), from sums over all texts of four pairs."""
    with_house, without, nats = {}, {}, 0.0
    for text, prob in enumerated(4).items():
        window, (name, house) = text[3 - last : 3], text[3]
        with_house[window, name, house] = with_house.get((window, name, house), 0.0) + prob
        without[window, name] = without.get((window, name), 0.0) + prob
    for (window, name, _), prob in with_house.items():
        nats -= prob * math.log(prob / without[window, name])
    assert math.isclose(nats, BOOK.floor(last), rel_tol=1e-9)


def test_a_text_is_worked_by_hand():
    ids = torch.tensor([[0, 1, 4, 2, 5, 1, 4, 2, 5, 2, 5]])  # names 1, 2, 1, 2, 2
    bit = math.log(2)
    assert BOOK.surprise(ids).tolist() == [[bit, bit, 0, 0, 0]]
    assert BOOK.surprise(ids, last=1).tolist() == [[bit, bit, bit, bit, 0]]
    assert BOOK.surprise(ids, last=0).tolist() == [[bit] * 5]


def test_surprise_is_the_floor_on_average():
    ids = BOOK.sample(20_000, 6, generator=torch.Generator().manual_seed(0))
    mean = BOOK.surprise(ids).mean(0)
    for seen in range(6):
        assert abs(float(mean[seen]) - BOOK.floor(seen)) < 4 * math.log(2) / 2 / math.sqrt(20_000)


def test_a_text_keeps_to_its_houses_and_another_has_others():
    ids = AddressBook().sample(50, 40, generator=torch.Generator().manual_seed(1))
    homes = []
    for text in ids.tolist():
        assert text[0] == 0
        home = {}
        for name, house in zip(text[1::2], text[2::2], strict=True):
            assert 1 <= name <= 24 < house <= 32
            assert home.setdefault(name, house) == house
        homes.append(home[1])
    assert len(set(homes)) == 8


def test_only_houses_count():
    ids = BOOK.sample(2, 3, generator=torch.Generator().manual_seed(2))
    inputs, targets, mask = BOOK.batch(ids)
    assert inputs.shape == targets.shape == mask.shape == (2, 6)
    assert mask[0].tolist() == [False, True] * 3
    assert (targets[mask] > BOOK.names).all()
    assert (inputs[mask] <= BOOK.names).all()
