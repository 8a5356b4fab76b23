"""The unigram tokenizer against every segmentation written out, its laws, and SentencePiece."""

import io
import json
import math
import random
import warnings
from collections import Counter
from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from src.tokens import files, unigram
from src.tokens.bpe import split_words
from src.tokens.unigram import BYTES, ESCAPE, PATTERN, UnigramTokenizer

TEXT = (
    "The whole of science is nothing more than a refinement of everyday thinking. Thinking in "
    "words is thinking in pieces of words: rethinking, unthinking, thinkers, and the unthinkable. "
    "A refined scientist refines; refining is a science, and everyday things are refined daily. "
    "Größe, größer, am größten! 12 of 1,234 words aren't words_at_all…\n\n    def f(x):\n"
)


# ---- the oracle: every segmentation, one by one ----------------------------------------------


def segmentations(word, ids):
    """All rows of ids that spell the word, each written out."""
    if not word:
        yield []
    for end in range(1, len(word) + 1):
        if word[:end] in ids:
            for rest in segmentations(word[end:], ids):
                yield [ids[word[:end]], *rest]


def random_cases(n=200):
    """(word, ids, log_probs): short words over three letters, and random tokens of 1 to 4 bytes."""
    draw = random.Random(1)
    for _ in range(n):
        word = bytes(draw.choices(b"abc", k=draw.randint(1, 11)))
        pieces = {bytes(draw.choices(b"abc", k=draw.randint(1, 4))) for _ in range(17)}
        pieces = sorted(pieces | {b"a", b"b", b"c"})
        weights = [draw.expovariate(1) for _ in pieces]
        log_probs = [math.log(weight / sum(weights)) for weight in weights]
        yield word, {piece: token for token, piece in enumerate(pieces)}, log_probs


CASES = list(random_cases())


def weigh(paths, log_probs):
    """The probability of each path."""
    return [math.prod(math.exp(log_probs[token]) for token in path) for path in paths]


def test_the_forward_and_the_backward_sum_are_the_sum_over_all_segmentations():
    for word, ids, log_probs in CASES:
        edges = unigram.lattice(word, ids)
        total = math.log(sum(weigh(segmentations(word, ids), log_probs)))
        assert unigram.forward(edges, log_probs)[-1] == pytest.approx(total, rel=1e-12)
        assert unigram.backward(edges, log_probs)[0] == pytest.approx(total, rel=1e-12)


def test_viterbi_finds_the_best_of_all_segmentations():
    numbers = set()
    for word, ids, log_probs in CASES:
        paths = list(segmentations(word, ids))
        numbers.add(len(paths))
        best = max(weigh(paths, log_probs))
        path, log_prob = unigram.best_path(unigram.lattice(word, ids), log_probs)
        assert path in paths  # equals may be there, by the same tokens in another order
        assert weigh([path], log_probs)[0] == pytest.approx(best, rel=1e-12)
        assert log_prob == pytest.approx(math.log(best), rel=1e-12)
    assert max(numbers) > 50


def test_the_posteriors_are_those_of_all_segmentations():
    for word, ids, log_probs in CASES:
        paths, pieces = list(segmentations(word, ids)), list(ids)
        weights = weigh(paths, log_probs)
        expected = Counter()
        for path, weight in zip(paths, weights, strict=True):
            ends = [*accumulate(len(pieces[token]) for token in path)]
            for start, end, token in zip([0, *ends], ends, path, strict=False):
                expected[start, end, token] += weight / sum(weights)
        edges = unigram.lattice(word, ids)
        found = {tuple(edge[:3]): edge.probability for edge in unigram.posteriors(edges, log_probs)}
        assert found == pytest.approx(expected, rel=1e-10)
        counts = Counter()
        for (_, _, token), m in found.items():
            counts[token] += 7 * m
        got = dict(enumerate(unigram.expect([edges], [7], log_probs).counts))
        assert got == pytest.approx({token: counts[token] for token in got})


def test_the_loss_of_a_token_with_one_place_is_what_the_word_loses_without_it():
    compared = 0
    for word, ids, log_probs in CASES:
        edges = unigram.lattice(word, ids)
        losses = unigram.expect([edges], [3], log_probs).losses
        paths = list(segmentations(word, ids))
        places = Counter(token for ending in edges for _, token in ending)
        for token in (token for token, n in places.items() if n == 1):
            without = sum(weigh([path for path in paths if token not in path], log_probs))
            if without:
                fall = math.log(sum(weigh(paths, log_probs)) / without)
                assert losses[token] == pytest.approx(3 * fall, rel=1e-9, abs=1e-12)
                compared += 1
    assert compared > 400


@pytest.mark.parametrize("sharpness", [0.0, 0.5, 1.0])
def test_segmentations_are_drawn_in_proportion_to_their_probability(sharpness):
    ids = {b"a": 0, b"aa": 1, b"aaa": 2}
    log_probs = [math.log(0.5), math.log(0.3), math.log(0.2)]
    edges, options = unigram.lattice(b"aaa", ids), {"generator": random.Random(0)}
    options["sharpness"] = sharpness
    drawn = Counter(tuple(unigram.sample_path(edges, log_probs, **options)) for _ in range(20_000))
    paths = list(segmentations(b"aaa", ids))
    weights = [p**sharpness for p in weigh(paths, log_probs)]
    assert len(drawn) == len(paths) == 4
    for path, weight in zip(paths, weights, strict=True):
        p = weight / sum(weights)
        # Four standard deviations, and the seed is fixed.
        assert abs(drawn[tuple(path)] / 20_000 - p) < 4 * math.sqrt(p * (1 - p) / 20_000)


# ---- numbers by hand -------------------------------------------------------------------------


def test_the_word_aab_by_hand():
    """a 1/2, b 1/4, ab 1/8, aa 1/8: a·a·b = 1/16, a·ab = 1/16, aa·b = 1/32; the sum is 5/32.

    Among equals the longest last token wins: a·ab.
    """
    ids = {b"a": 0, b"b": 1, b"ab": 2, b"aa": 3}
    log_probs = [math.log(p) for p in (1 / 2, 1 / 4, 1 / 8, 1 / 8)]
    edges = unigram.lattice(b"aab", ids)
    assert edges == [[], [(0, 0)], [(0, 3), (1, 0)], [(1, 2), (2, 1)]]
    assert math.exp(unigram.forward(edges, log_probs)[-1]) == pytest.approx(5 / 32)
    assert unigram.best_path(edges, log_probs)[0] == [0, 2]
    assert {(s, e): p for s, e, _, p in unigram.posteriors(edges, log_probs)} == pytest.approx(
        {(0, 1): 4 / 5, (1, 2): 2 / 5, (2, 3): 3 / 5, (1, 3): 2 / 5, (0, 2): 1 / 5}
    )


def test_a_word_that_nothing_spells_is_refused():
    edges = unigram.lattice(b"ab", {b"a": 0})
    assert unigram.forward(edges, [0.0])[-1] == -math.inf
    for refused in (
        lambda: unigram.best_path(edges, [0.0]),
        lambda: unigram.posteriors(edges, [0.0]),
        lambda: unigram.sample_path(edges, [0.0], generator=random.Random(0)),
    ):
        with pytest.raises(ValueError, match="some row of tokens spells"):
            refused()


def test_a_token_that_is_impossible_is_never_used():
    ids, log_probs = {b"a": 0, b"aa": 1}, [-1.0, -math.inf]
    edges = unigram.lattice(b"aa", ids)
    assert unigram.best_path(edges, log_probs)[0] == [0, 0]
    assert unigram.sample_path(edges, log_probs, generator=random.Random(0), sharpness=0) == [0, 0]
    assert [edge.probability for edge in unigram.posteriors(edges, log_probs)] == [1, 0, 1]


def test_a_word_of_ten_thousand_bytes_does_not_underflow():
    tokenizer = UnigramTokenizer({b"a": math.log(0.01), b"aa": math.log(0.01)})
    assert -50_000 < tokenizer.log_prob("a" * 10_000) < -20_000
    assert len(tokenizer.encode("a" * 10_000)) == 5_000


def test_the_empty_word_is_certain_and_has_no_tokens():
    assert unigram.lattice(b"", {b"a": 0}) == [[]]
    assert unigram.forward([[]], []) == unigram.backward([[]], []) == [0.0]
    assert unigram.best_path([[]], []) == ([], 0.0)
    assert unigram.posteriors([[]], []) == []


# ---- training --------------------------------------------------------------------------------


def trained(text=TEXT, **options):
    steps = []
    options = {"vocabulary_size": 307, "report": steps.append} | options
    return UnigramTokenizer.train(text, **options), steps


@pytest.mark.parametrize("vocabulary_size", [257, 258, 307])
def test_em_never_lowers_the_likelihood_and_prunings_leave_three_quarters(vocabulary_size):
    tokenizer, steps = trained(vocabulary_size=vocabulary_size, em_steps=7)
    rounds = list(dict.fromkeys(step.n_pieces for step in steps))
    assert len(steps) == 8 * len(rounds)
    for before, after in pairwise(steps):
        if before.n_pieces == after.n_pieces:
            assert after.log_likelihood >= before.log_likelihood - 1e-9
    for before, after in pairwise(rounds):
        assert after - 256 == max(vocabulary_size - 257, int(0.75 * (before - 256)))
    assert rounds[-1] == vocabulary_size - 1  # one special token
    assert tokenizer.vocabulary_size == vocabulary_size
    assert tokenizer.pieces[:256] == BYTES


def test_probabilities_sum_to_one_and_every_byte_has_some():
    tokenizer, _ = trained()
    assert math.fsum(map(math.exp, tokenizer.log_probs)) == pytest.approx(1, abs=1e-12)
    assert tokenizer.log_probs[0] == pytest.approx(math.log(ESCAPE / 256))  # NUL is not in TEXT
    assert min(tokenizer.log_probs[:256]) == tokenizer.log_probs[0]
    learnt = tokenizer.log_probs[256:]
    assert list(learnt) == sorted(learnt, reverse=True)


def test_the_floor_is_no_evidence_for_a_byte():
    """A byte that is only ever drawn blindly keeps its floor, however often it occurs."""
    floor, counts = math.log(ESCAPE / 256), [0.0] * 97 + [5.0] + [0.0] * 158 + [5.0]
    log_probs = unigram.maximise(counts, [floor] * 257)
    assert log_probs[97] == pytest.approx(floor)
    assert log_probs[256] == pytest.approx(math.log(1 - ESCAPE))


def test_training_is_deterministic_and_takes_an_iterable():
    whole, _ = trained(TEXT + TEXT)
    again, _ = trained(text for text in (TEXT, TEXT))
    assert TEXT[-1] == "\n"
    assert (whole.pieces, whole.log_probs) == (again.pieces, again.log_probs)


def test_a_text_with_few_substrings_gives_a_smaller_vocabulary_and_says_so():
    with pytest.warns(UserWarning, match="has 1 substrings.* 258 tokens rather than 300"):
        tokenizer = UnigramTokenizer.train("abab", vocabulary_size=300)
    assert tokenizer.vocabulary_size == 258
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        UnigramTokenizer.train("abab", vocabulary_size=258)


def test_seeds_are_ordered_by_the_bytes_that_they_cover():
    """abab 2 times 4, ab 4 times 2, both 8; aba and bab 2 times 3, cd 3 times 2, all 6; ba 4."""
    seeds = [piece for piece, _ in unigram.seed_pieces({"abab": 2, "cd": 3}, 6)]
    assert seeds == [b"ab", b"abab", b"aba", b"bab", b"cd", b"ba"]


def test_seeds_are_whole_characters_and_occur_twice():
    seeds = unigram.seed_pieces({"größe": 1, "größer": 1}, 1000)
    assert (("größe").encode(), 2) in seeds
    assert ("ö".encode(), 2) in seeds
    assert all(piece.decode() and n == 2 and len(piece) > 1 for piece, n in seeds)
    assert "größer".encode() not in dict(seeds)
    short = unigram.seed_pieces({"a" * 9: 2}, 99, longest=4)
    assert max(len(piece.decode()) for piece, _ in short) == 4


# ---- the tokenizer ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer():
    return trained()[0]


@settings(max_examples=200, deadline=None)
@given(text=st.text(), seed=st.integers(0, 9))
def test_any_text_comes_back(tokenizer, text, seed):
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids, errors="strict") == text
    drawn = tokenizer.sample(text, generator=random.Random(seed), sharpness=0.3)
    assert tokenizer.decode(drawn, errors="strict") == text
    assert all(0 <= token < len(tokenizer.pieces) for token in ids + drawn)
    assert tokenizer.encode(text) == ids  # now from the cache
    assert tokenizer.best_log_prob(text) <= tokenizer.log_prob(text) + 1e-9
    spelt = math.fsum(tokenizer.log_probs[token] for token in ids)
    assert tokenizer.best_log_prob(text) == pytest.approx(spelt, rel=1e-9)


def test_words_keep_the_space_before_them():
    words = split_words("a fox, 12 foxes\n\n  can't_do it", PATTERN)
    assert words == ["a", " fox", ",", " 12", " foxes", "\n\n ", " can", *"'t_", "do", " it"]


def test_the_probability_of_a_text_is_the_product_of_those_of_its_words(tokenizer):
    whole = tokenizer.log_prob("refined thinking, thinking")
    parts = sum(map(tokenizer.log_prob, ["refined", " thinking", ",", " thinking"]))
    assert whole == pytest.approx(parts)


def test_without_a_pattern_tokens_may_cross_the_ends_of_words():
    probs = {b"a": math.log(0.4), b"b": math.log(0.4), b" ": math.log(0.1), b"  ": math.log(0.1)}
    split, free = UnigramTokenizer(probs), UnigramTokenizer(probs, pattern=None)
    assert math.exp(split.log_prob("a  b")) == pytest.approx(0.16 * 0.01, rel=1e-6)
    assert math.exp(free.log_prob("a  b")) == pytest.approx(0.16 * (0.01 + 0.1), rel=1e-6)


def test_special_tokens_have_ids_that_no_text_makes():
    tokenizer = UnigramTokenizer({b"ab": -1.0}, specials=iter(["<|endoftext|>", "<|pad|>"]))
    assert tokenizer.specials == {"<|endoftext|>": 257, "<|pad|>": 258}
    assert tokenizer.vocabulary_size == 259
    assert max(tokenizer.encode("ab<|endoftext|>")) == 256
    assert tokenizer.encode("ab<|endoftext|>ab<|pad|>", tokenizer.specials) == [256, 257, 256, 258]
    assert 258 not in tokenizer.encode("<|pad|><|endoftext|>", ["<|endoftext|>"])
    assert tokenizer.token_bytes(258) == b"<|pad|>"
    assert tokenizer.decode([256, 257]) == "ab<|endoftext|>"
    for make in (UnigramTokenizer, lambda _, **names: UnigramTokenizer.train("ab", 300, **names)):
        with pytest.raises(TypeError, match=r"write \('<s>',\)"):
            make({}, specials="<s>")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: UnigramTokenizer.train("a", vocabulary_size=256), "at least 257.*got 256"),
        (lambda: UnigramTokenizer.train("", vocabulary_size=300), "expected some text"),
        (lambda: UnigramTokenizer.train([], vocabulary_size=300), "expected some text"),
        (lambda: UnigramTokenizer.train("", 300, pattern="a*"), "expected some text"),
        (lambda: UnigramTokenizer.train("a\ud800", vocabulary_size=300), "surrogates"),
        (lambda: UnigramTokenizer.train("a", vocabulary_size=300, em_steps=0), "em_steps=0"),
        (lambda: UnigramTokenizer.train("a b", vocabulary_size=300, pattern="a"), "leaves out"),
        (lambda: UnigramTokenizer({b"": -1.0}), "no empty token"),
        (lambda: UnigramTokenizer({b"ab": 0.5}), "at most 1, got 1.6"),
        (lambda: UnigramTokenizer({b"ab": math.nan}), "at most 1, got nan"),
        (lambda: UnigramTokenizer({b"ab": -0.1, b"c": -0.1}), "at most 1, got 1.8"),
        (lambda: UnigramTokenizer({}, specials=("<s>", "<s>")), "different names"),
        (lambda: UnigramTokenizer({}, pattern="(a)|."), "without groups"),
        (lambda: UnigramTokenizer({}).log_prob("ab\udc00"), "surrogates"),
        (lambda: UnigramTokenizer({}).posteriors("ab\udc00"), "surrogates"),
        (lambda: unigram.sample_path([[]], [], generator=None, sharpness=-1), "at least 0, got -1"),
        (lambda: unigram.expect([[[]]], [1, 2], []), "zip"),  # not as many frequencies as words
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# ---- files -----------------------------------------------------------------------------------


def test_a_saved_tokenizer_comes_back_as_it_was(tmp_path):
    pieces = {b"\xff\x00": -2.5, "ö".encode(): -1 / 3, b"never": -math.inf, b"ab": -3}
    path = tmp_path / "tokenizer.json"
    for one in (
        trained(specials=iter(["<|endoftext|>", "<pad>"]))[0],
        UnigramTokenizer(pieces, pattern=None, specials=()),
    ):
        files.save(one, path)
        other = files.load(path)
        for name in ("pieces", "log_probs", "ids", "specials", "pattern"):
            assert getattr(other, name) == getattr(one, name)
        assert other.encode("refined ö ab" + TEXT) == one.encode("refined ö ab" + TEXT)
    json.loads(path.read_text(), parse_constant=pytest.fail)  # JSON knows no infinity


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pattern": ["a"]}, "pattern"),
        ({"pattern": "(?s:.)"}, "expected the default pattern or the one named"),
        ({"specials": {"<s>": 300}}, "expected a tokenizer"),
        ({"specials": [["<s>"]]}, "unhashable"),
        ({"pieces": None}, "expected a tokenizer"),
        ({256: ["ab"]}, "unpack"),
        ({256: ["ab", [1]]}, "float"),
        ({256: ["Ġa", -1.0]}, "latin-1"),
        ({256: ["ab", 0.5]}, "at most 1"),
        ({256: ["ab", 1e9]}, "at most 1"),
        ({256: ["cd", -3.0]}, "each piece once"),
        ({97: ["cd", -3.0], 257: ["a", -3.0]}, "256 bytes first"),
    ],
)
def test_a_wrong_entry_of_a_file_is_refused(change, message, tmp_path):
    path = tmp_path / "own.json"
    files.save(UnigramTokenizer({b"ab": -3.0, b"cd": -3.0}), path)
    content = json.loads(path.read_text(encoding="utf-8"))
    for key, value in change.items():
        (content if isinstance(key, str) else content["pieces"])[key] = value
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ValueError, match=message) as refused:
        files.load(path)
    assert "own.json" in str(refused.value)


# ---- an independent implementation -----------------------------------------------------------


@pytest.fixture(scope="module")
def sentence_piece():
    """(SentencePiece's processor, our tokenizer with its tokens and scores)."""
    sentencepiece = pytest.importorskip("sentencepiece")
    lines = [line for line in TEXT.split(". ") if line]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines * 3),
        model_writer=model,
        model_type="unigram",
        vocab_size=110,
        hard_vocab_limit=False,
        character_coverage=1.0,
        normalization_rule_name="identity",
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        num_threads=1,
        minloglevel=2,
    )
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    scores = {
        theirs.id_to_piece(token).replace("▁", " ").encode(): theirs.get_score(token)
        for token in range(3, theirs.vocab_size())  # after <unk>, <s> and </s>
    }
    return theirs, UnigramTokenizer(scores, pattern=None)


def test_viterbi_agrees_with_sentencepiece(sentence_piece):
    theirs, ours = sentence_piece
    for line in ("unthinkable scientists", "the refinement of words", "everyday rethinking is in"):
        pieces = [piece.replace("▁", " ").encode() for piece in theirs.encode(line, out_type=str)]
        assert [ours.token_bytes(token) for token in ours.encode(line)] == pieces
        assert len(pieces) > 4


def test_the_sum_agrees_with_all_of_sentencepieces_n_best(sentence_piece):
    theirs, ours = sentence_piece
    floor = math.log(ESCAPE / 256) + 1e-9  # what a byte has that is no token of theirs
    seen = {piece: t for piece, t in ours.ids.items() if ours.log_probs[t] > floor}
    numbers = []
    for word in ("thinking", "refined things", "everyday", "unthinking", "rethinking is"):
        found = theirs.nbest_encode_as_pieces(word, 512)
        numbers.append(len(found))
        assert len(found) == len(list(segmentations(word.encode(), seen)))
        probs = [math.exp(sum(map(theirs.get_score, theirs.piece_to_id(path)))) for path in found]
        assert ours.log_prob(word) == pytest.approx(math.log(math.fsum(probs)), abs=1e-4)
    assert 20 < max(numbers) < 512, numbers  # 512 is all that it would list
