"""`src.today.lora`: it begins as nothing, learns alone, has a low rank, and merges exactly."""

import pytest
import torch
from oracles import greatest_difference, normal

from src.gpt.gpt2 import GPT, GPTConfig
from src.today.lora import LoRA, add_lora, merge_lora

IDS = torch.tensor([[1, 5, 9, 2, 7], [3, 3, 0, 10, 4]])


def made(**options):
    sizes = {"layers": 2, "heads": 2, "channels": 16, "hidden": 32, "tied": True}
    config = GPTConfig.llama(11, context_length=8, **(sizes | options))
    return GPT(config, generator=torch.Generator().manual_seed(0)).double()


def drawing():
    return torch.Generator().manual_seed(1)


def learn(model, learning, steps=40):
    """Some steps towards saying the token itself again."""
    optimiser = torch.optim.Adam(learning, lr=0.003)
    losses = []
    for _ in range(steps):
        loss = torch.nn.functional.cross_entropy(model(IDS).flatten(0, 1), IDS.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def test_it_begins_as_the_model_was():
    model = made()
    expected = model(IDS)
    add_lora(model, rank=3, generator=drawing())
    assert torch.equal(model(IDS), expected)


def test_only_what_is_added_learns_and_it_does():
    model, before = made(), made().state_dict()
    learning = add_lora(model, rank=3, generator=drawing())
    assert {id(p) for p in learning} == {id(p) for p in model.parameters() if p.requires_grad}
    losses = learn(model, learning)
    assert losses[-1] < losses[0] - 0.04  # of 0.05 that can be won
    kept = {name.replace(".base.", "."): held for name, held in model.state_dict().items()}
    for name, held in before.items():
        assert torch.equal(kept[name], held), name


def test_the_number_of_what_learns():
    """r (inputs + outputs) for each of the five maps of a block."""
    learning = add_lora(made(), rank=3, generator=drawing())
    maps = [(16, 48), (16, 16), (16, 32), (32, 16), (16, 32)]
    assert sum(p.numel() for p in learning) == 2 * 3 * sum(i + o for i, o in maps)


def test_what_is_learnt_has_a_low_rank_and_merges_exactly():
    model, before = made(bias=True), made(bias=True).state_dict()
    learn(model, add_lora(model, rank=3, generator=drawing()))
    expected = model(IDS)
    merge_lora(model)
    assert not any(isinstance(part, LoRA) for part in model.modules())
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert greatest_difference(model(IDS), expected) < 1e-12
    assert model.state_dict().keys() == before.keys()
    for name, held in model.state_dict().items():
        added = held - before[name]
        if held.ndim == 2 and "decoder" in name:
            assert torch.linalg.matrix_rank(added, rtol=1e-9) == 3, name
        else:
            assert not added.any(), name


def test_the_second_map_by_hand():
    base = torch.nn.Linear(4, 3).double()
    lora = LoRA(base, rank=2, alpha=6.0, generator=drawing())
    with torch.no_grad():
        lora.up.copy_(normal(3, 2))
    x = normal(5, 4, seed=2)
    expected = base(x) + 3 * torch.einsum("or,ri,bi->bo", lora.up, lora.down, x)
    assert greatest_difference(lora(x), expected) < 1e-12


def test_maps_can_be_chosen():
    model = made()
    add_lora(model, rank=1, chosen=lambda name: name.endswith("qkv"), generator=drawing())
    found = [name for name, part in model.named_modules() if isinstance(part, LoRA)]
    assert found == [f"decoder.blocks.{i}.attention.qkv" for i in range(2)]


def test_what_cannot_be_is_refused():
    for rank in (0, 17):
        with pytest.raises(ValueError, match=f"expected a rank from 1 to 16, got {rank}"):
            add_lora(made(), rank=rank, generator=drawing())
    model = made()
    add_lora(model, generator=drawing())
    with pytest.raises(ValueError, match="merge it first"):
        add_lora(model, generator=drawing())
