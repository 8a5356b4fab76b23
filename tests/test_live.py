"""The figures that one touches: they agree with `src`, and answer a hand and a key."""

import json
import math
import re
from dataclasses import replace
from itertools import chain, product

import numpy as np
import pytest
import torch
from browsing import PHONE, ROOT, Visit

from live import is_made, made_script, our_tokenizer
from next_token.pages import as_script, write_page
from src.attention.attention import scaled_dot_product_attention
from src.attention.masks import banded_mask, causal_mask
from src.attention.positions import sinusoidal_positions
from src.gpt import pretrained
from src.gpt.gpt2 import GPT, GPTConfig
from src.gpt.released import open_run, scores_of_ids
from src.gpt.sampling import generate, min_p, nucleus, temperature, top_k
from src.likelihood.ngrams import BackOffModel, count_ngrams, relative_frequencies
from src.likelihood.smoothing import NgramModel
from src.texts.markov import small_english
from src.tokens import files
from src.tokens.bpe import BytePairTokenizer
from src.tokens.bytes import END
from src.tokens.unigram import UnigramTokenizer, backward, best_path, forward, lattice, posteriors
from src.tokens.vocabularies import released

pytestmark = pytest.mark.site
pytest_plugins = ["site_fixtures"]

SMALLEST = ROOT / "results" / "gpt2" / "c4-seed-0"
MODULES = {  # of each figure, in order, as its page names them
    line.split()[-1]: line.split()[1:]
    for path in (ROOT / "book").rglob("*.md")
    for line in path.read_text(encoding="utf-8").splitlines()
    if line.startswith(":::{live}")
}


@pytest.fixture
def open_page(context):
    """An empty page with some modules, and a figure on it, if one is named."""
    opened, faults = [], []

    def open_it(*modules, figure=None):
        page = context.new_page()
        opened.append(page)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.set_content('<main lang="en"></main>')
        for name in MODULES.get(figure, modules):
            if is_made(ROOT, name):
                page.add_script_tag(content=made_script(ROOT, name))
            else:
                page.add_script_tag(path=ROOT / "live" / f"{name}.js")
        if figure:
            page.evaluate(f"nextToken.figures.{figure}(document.querySelector('main'))")
        return page

    yield open_it
    for page in opened:
        page.close()
    assert not faults


def test_attention_is_that_of_src(open_page):
    page = open_page("attention")
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        n, d, e = torch.randint(1, 7, (3,), generator=generator).tolist()
        shapes = [(d,), (n, d), (n, e)]
        draw = [torch.randn(*each, generator=generator).double() * 50 for each in shapes]
        allowed = torch.rand(n, generator=generator) < 0.7
        allowed[0] = True
        given = json.dumps([part.tolist() for part in (*draw, allowed)])
        found = page.evaluate(f"nextToken.attention(...{given})")
        output, weights = scaled_dot_product_attention(draw[0][None], *draw[1:], mask=allowed[None])
        for name, expected in (("output", output), ("weights", weights)):
            told = torch.tensor(found[name], dtype=torch.float64)
            assert torch.allclose(told, expected[0], atol=1e-9, rtol=0)


def test_masks_and_what_they_reach_are_those_of_src(open_page):
    page = open_page("masks")
    generator = torch.Generator().manual_seed(0)
    for length in (1, 4, 7):
        assert page.evaluate(f"nextToken.causalMask({length})") == causal_mask(length).tolist()
        found = page.evaluate(f"nextToken.bandedMask({length}, 2)")
        assert found == banded_mask(length, 2).tolist()
        mask = torch.rand(length, length, generator=generator) < 0.3
        steps = torch.eye(length)
        for layers in range(1, 5):
            steps = steps @ (mask + torch.eye(length))
            found = page.evaluate(f"nextToken.reach({json.dumps(mask.tolist())}, {layers})")
            assert found == (steps > 0).tolist()


def test_positions_are_those_of_src(open_page):
    page = open_page("positions")
    table = sinusoidal_positions(50, 8, base=100)
    for t in (0, 1, 7, 49):
        found = page.evaluate(f"nextToken.sinusoidalPosition({t}, 8, 100)")
        assert torch.allclose(torch.tensor(found, dtype=table.dtype), table[t], atol=1e-6)


def test_likelihood_and_gradient_are_those_of_torch(open_page):
    page = open_page("attention", "maximum_likelihood")
    for theta, seen, other in ((0.35, 2, 2), (0.9, 200, 3), (1.0, 4, 0)):
        expected = seen * math.log(theta) + (other * math.log((1 - theta) / 2) if other else 0)
        found = page.evaluate(f"nextToken.logLikelihood({theta}, {seen}, {other})")
        assert math.isclose(found, expected, abs_tol=1e-9)
    logits = torch.randn(5, generator=torch.Generator().manual_seed(0)).double().requires_grad_()
    torch.nn.functional.cross_entropy(logits[None], torch.tensor([3])).backward()
    found = page.evaluate(f"nextToken.gradientOfRow({logits.tolist()}, 3)")
    assert torch.allclose(torch.tensor(found, dtype=torch.float64), logits.grad, atol=1e-9)


def test_the_top_of_the_hill_is_the_relative_frequency(open_page):
    page = open_page(figure="likelihood_hill")
    said = page.locator("output")
    page.get_by_role("button", name="+ sleeps").click()
    assert said.inner_text().startswith("3 of 5 cats sleep")
    handle = page.get_by_role("slider")
    while handle.get_attribute("aria-valuenow") != "60":
        handle.press("ArrowRight")
    assert "this is 1.000 times" in said.inner_text()
    for _ in range(9):
        page.get_by_role("button", name="ten times as many").click()
    assert said.inner_text().startswith("3000 of 5000")


@pytest.mark.parametrize("kind", ["interpolated", "absolute", "kneser-ney"])
def test_counts_keep_and_save_what_those_of_src_do(open_page, kind):
    page, names = open_page("numbers", "smoothing", "saved_penny"), {}
    chapter = (ROOT / "book/likelihood/smoothing.md").read_text(encoding="utf-8")
    exec(chapter[chapter.index("lines = [") : chapter.index("tale = [")], names)
    assert page.evaluate("nextToken.tale()") == names["story"]
    drawn = torch.randint(5, (60,), generator=torch.Generator().manual_seed(0)).tolist()
    for story, part in product((names["story"], [*map(str, drawn)]), (0.05, 0.5, 1)):
        words = sorted(set(story))
        levels = count_ngrams([*map(words.index, story)], order=3, vocabulary_size=len(words))
        if kind == "interpolated":
            tables = tuple(relative_frequencies(grams, part) for grams in levels)
            model = BackOffModel(3, len(words), None, tables)
        else:
            model = NgramModel.from_counts(levels, estimator=kind, discount=part)
        contexts = [[], *([v] for v in words), *product(words, words)]
        found = page.evaluate(LADDERS, [story, words, kind, part, [*map(list, contexts)]])
        expected = [np.exp(model.log_probs([*map(words.index, each)])) for each in contexts]
        assert np.allclose(found, expected, rtol=0, atol=1e-9)


LADDERS = """([story, words, kind, part, contexts]) => contexts.map((context) =>
  nextToken.backOff(nextToken.countNgrams(story, 3), words, kind, part, context).probs)"""


def test_forty_coins_become_one_and_the_penny_goes_elsewhere(open_page):
    page = open_page(figure="saved_penny")
    said, word = page.locator("output"), page.get_by_role("button", name="francisco 40")
    assert "0.0361" in word.inner_text()
    assert "0.25 reaches other words" in said.inner_text()
    for part, size in (("svg", [80, 32]), (".coin", [78, 30])):  # 39 coins, and half of one
        assert [*word.locator(part).bounding_box().values()][2:] == size
    assert page.get_by_role("img", name="0.50 comes here, 0.25 is saved").is_visible()
    page.get_by_role("button", name="Kneser–Ney").click()
    assert page.get_by_role("button", name="francisco 1").is_visible()
    page.get_by_role("button", name="glasses 5").click()
    assert said.inner_text().startswith("“glasses” after “is reading”: 0.0463, 3.07 nats")
    for _ in range(10):
        page.get_by_role("slider").press("ArrowRight")
    assert "0.0000, ∞ nats" in said.inner_text()
    page.get_by_role("button", name="Write the word").click()
    assert "after “reading glasses”: 1.0000" in said.inner_text()
    page.get_by_role("button", name="As it was").click()
    assert said.inner_text().startswith("“francisco” after “is reading”: 0.0361")


def test_a_row_learns_from_the_word_that_came(open_page):
    page = open_page(figure="row_step")
    shares = page.locator("tbody .share")
    page.get_by_role("button", name="walks").click()
    assert shares.all_inner_texts() == ["0.08", "0.28", "0.56", "0.08"]
    assert page.get_by_role("group").get_by_role("button").all_inner_texts() == ["0.1", "1", "10"]
    page.get_by_role("button", name="10", exact=True).click()
    page.get_by_role("button", name="end", exact=True).click()
    assert page.locator("output").inner_text().startswith("Step 2: “end” had 0.08, so")
    assert shares.all_inner_texts()[0] == "1.00"


def test_the_width_of_the_interval_is_the_probability_of_the_text(open_page):
    page = open_page("numbers", "small_english", "intervals")
    source = small_english()
    assert tuple(page.evaluate("nextToken.smallEnglish.vocabulary")) == source.vocabulary
    rows = torch.tensor(page.evaluate("nextToken.smallEnglish.twentieths"), dtype=torch.float64)
    assert torch.allclose(rows / 20, source.transition.double(), atol=1e-9)
    page.evaluate("nextToken.figures.intervals(document.querySelector('main'))")
    for word in ("a", "tabby", "sleeps", "<end>"):
        page.get_by_role("button", name=f"{word} 0").click()
    nats = -float(source.log_prob(source.encode("a tabby sleeps <end>")))
    said = page.locator("output")
    assert f": from 0.754000 to 0.757600. Width 0.003600, so {nats:.2f} nats" in said.inner_text()
    assert page.locator("svg text").count() == 2 + 3 + 1 + 2  # river, bank, sleeps: no room
    assert page.locator("svg line").count() == 2 * 3
    page.get_by_role("button", name="Take one back").click()
    assert said.inner_text().startswith("a tabby sleeps:")


@pytest.mark.parametrize("name", ["our", "gpt2"])
def test_the_tokens_of_a_text_are_those_of_src(open_page, name):
    given = json.loads((ROOT / "tests" / "conformance" / "texts.json").read_text(encoding="utf-8"))
    texts = ["don't  stop\u20142,048!", "naïve 終わり e\u0301", *chain(*given.values())]
    tokenizer = released(name) if name == "gpt2" else our_tokenizer()
    page = open_page("bpe", f"{name}_merges")
    page.evaluate(f"void (bpe = new nextToken.BytePairTokenizer(nextToken.{name}Merges))")
    found = page.evaluate("(texts) => texts.map((text) => bpe.encode(text))", texts)
    for text, numbers in zip(texts, found, strict=True):
        assert [tokenizer.ids[number] for number in numbers] == tokenizer.encode(text)


def test_merges_are_made_by_hand_and_by_key_and_ours_win_where_manuals_repeat(open_page):
    page = open_page(figure="merge_tree")
    said = page.locator("output")
    fewer = "Ours need fewer for “␣iterable” (1, not 2); GPT-2’s for "
    assert said.inner_text().endswith(f"4 by GPT-2’s. {fewer}“␣matches” (1, not 2).")
    page.get_by_label("Your text").fill(" iterable")
    assert said.inner_text().endswith(f"{fewer}no word.")
    page.get_by_role("button", name="End").press("Home")
    page.get_by_role("button", name="Next").dblclick()
    assert said.inner_text().startswith("Step 2 of 8: our merges join l + e; GPT-2’s join i")
    assert page.get_by_role("img", name="our merges: ␣ · i · te · r · a · b · le").is_visible()
    page.get_by_label("Your text").fill("")
    assert said.inner_text() == "Write a text."


def test_cuts_of_a_word_are_those_of_src(open_page):
    page = open_page("unigram", "unigram_pieces")
    pieces = page.evaluate("nextToken.unigramPieces.learnt")
    src = UnigramTokenizer({piece.encode("latin-1"): value for piece, value in pieces})
    noise = torch.randn(len(src.pieces), generator=torch.Generator().manual_seed(0))
    noise[256:][noise[256:] > 1] = -math.inf  # tokens that are gone; bytes stay
    probs = [*map(float.__add__, src.log_probs, noise.tolist())]
    for word in (" returns", " naïve", " indexing"):
        edges = lattice(word.encode(), src.ids)
        found = page.evaluate(CUTS, [pieces, word.encode().decode("latin-1"), noise.tolist()])
        [path, score], shares = best_path(edges, probs), posteriors(edges, probs)
        sums = forward(edges, probs), backward(edges, probs)
        assert found == pytest.approx([*chain(*sums, path, [score], *shares)], abs=1e-9, rel=0)


CUTS = """([pieces, word, noise]) => {
  const { logProbs, ids } = nextToken.unigramTokenizer(pieces);
  const given = [nextToken.lattice(word, ids), logProbs.map((value, i) => value + noise[i])];
  return ["forward", "backward", "bestPath", "posteriors"]
    .map((each) => nextToken[each](...given)).flat(2);
}"""


def test_the_best_cut_jumps_and_a_word_without_a_token_loses_its_share(open_page):
    page = open_page(figure="word_lattice")
    said, now = page.locator("output"), page.get_by_role("slider", name="now, places 0 to 3")
    now.click()
    assert "costs 0.71 nats more: −log(1 − 0.51)" in said.inner_text()
    now.press("Enter")
    assert "no·where is the best cut: 5.12 nats. All 22 cuts together: 4.33" in said.inner_text()
    now.press("ArrowUp")
    assert "jumps from no·where to now·here" in said.inner_text()
    assert now.get_attribute("aria-valuenow") == "1"
    now.drag_to(said)
    assert "now: 0.080 → 0.0" in said.inner_text()
    for name in ("where, places 2 to 7", "here, places 3", "re, places 5", "e, places 6 to 7"):
        page.get_by_role("slider", name=re.compile(f"^{name}")).press("Enter")
    assert said.inner_text().startswith("No cut is left")
    page.get_by_role("textbox").fill("returns")
    assert "␣returns is the best cut: 7.21 nats. All 8 cuts together: 7.11" in said.inner_text()


def test_the_gpt_that_writes_has_the_logits_of_src_and_its_tokens(open_page):
    page = open_page("attention", "gpt", "one_sentence", "write_on")
    run = open_run(ROOT / "results" / "one_sentence" / "model")
    for text in ("The naïve quokka returns 42 if the", "def f(x):\n    return"):
        ids = [1023, *run.tokenizer.encode(text)]
        found = page.evaluate(f"({TRIAL})(nextToken.model, {ids})")
        with torch.no_grad():
            logits = run.model(torch.tensor([ids]))[0]
        assert torch.allclose(torch.tensor(found), logits, atol=1e-4, rtol=0)
    parts = page.evaluate("nextToken.spelled(nextToken.model.tokenizer)")
    assert [bytes(part) for part in parts[:1023]] == [*run.tokenizer._bytes.values()][:1023]


def test_the_perfect_reader_is_that_of_src(open_page):
    page, world = open_page("attention", "micro_world", "microworld"), open_run(SMALLEST).world
    drawn = world.sample(200, generator=torch.Generator().manual_seed(0))
    call = "texts => texts.map(t => nextToken.nextWords(nextToken.microWorld(nextToken.world), t))"
    for each, rows in zip(drawn, page.evaluate(call, [d.words for d in drawn]), strict=True):
        exact = world(world.encode(("<end>", *each.words[:-1]))[None])[0]
        for row, found in zip(exact, rows[:-1], strict=True):
            assert {*found} == {world.vocabulary[i] for i in row.isfinite().nonzero()}
            law = row[world.encode([*found])]
            probs = torch.tensor([*found.values()], dtype=torch.float64)
            assert torch.allclose(probs.log(), law, atol=1e-9, rtol=0)
        assert rows[-1] == {}


def test_filters_are_those_of_src_and_draws_follow_their_law(open_page):
    page = open_page("attention", "sampling")
    logits = torch.randn(30, generator=torch.Generator().manual_seed(0)).double()
    for call, expected in {
        "temperature(x, 0.5)": temperature(logits, 0.5),
        "temperature(x, 0)": temperature(logits, 0),
        "topK(x, 7)": top_k(logits, 7),
        "nucleus(x, 0.6)": nucleus(logits, 0.6),
        "minP(x, 0.3)": min_p(logits, 0.3),
    }.items():
        code = f"((x) => nextToken.softmax(nextToken.{call}))({logits.tolist()})"
        found = torch.tensor(page.evaluate(code), dtype=torch.float64)
        assert torch.allclose(found, expected.softmax(-1), atol=1e-9)
    counts = page.evaluate(
        """() => {
             const [found, probs] = [[0, 0, 0, 0], [0.1, 0, 0.6, 0.3]];
             for (let n = 0.5; n < 1000; n += 1) found[nextToken.draw(probs, n / 1000)] += 1;
             return found;
           }"""
    )
    assert counts == [100, 0, 600, 300]


@pytest.mark.parametrize("prompt", [1, 3, 8])
@pytest.mark.parametrize(
    ("cache", "counts"), [(False, "read scores"), (True, "computed cachedScores")]
)
def test_a_call_costs_what_generate_computes(open_page, prompt, cache, counts):
    config = GPTConfig(9, context_length=8, layers=2, heads=2, channels=8)
    seeded, seen = torch.Generator(), []
    model = GPT(config, generator=seeded)
    model.decoder.blocks[0].attention.record = lambda weights: seen.append(weights[0, 0])
    generate(model, [[1] * prompt], max_new_tokens=21 - prompt, cache=cache, generator=seeded)
    found = open_page("cache").evaluate(f"nextToken.calls({prompt}, 20, 8, 'one')")
    assert [[call[key] for key in counts.split()] for call in found] == [
        [len(w), w.numel()] for w in seen
    ]


def test_kept_keys_give_the_logits_of_the_window_or_roll_and_give_those_of_a_band(open_page):
    page, ids = open_page("attention", "gpt", "one_sentence", "cache"), torch.arange(300, 320)[None]
    model = open_run(ROOT / "results" / "one_sentence" / "model").model
    band = causal_mask(20) & banded_mask(20, 8)
    with torch.no_grad():
        x = model.embedding[ids] + model.positions.table[torch.arange(20).clamp(max=7)]
        for block in model.decoder.blocks:
            x = block(x, mask=band)
        rolled = model.unembed(model.decoder.final_norm(x))
        expected = {"one": model(ids[:, 12:]), "half": model(ids[:, 15:]), "rolling": rolled}
        for beyond, logits in expected.items():
            found = page.evaluate(f"({IN_CALLS})(nextToken, {ids[0].tolist()}, '{beyond}')")
            assert torch.allclose(torch.tensor(found), logits[0, -1], atol=1e-4, rtol=0)
    kept = page.evaluate("4 * nextToken.cached(nextToken.model.config, 64)")
    assert kept == 4 * model.config.cached(64)


IN_CALLS = """({ model, GPT, readWeights, calls, withCache }, ids, beyond) =>
  withCache(new GPT(readWeights(model.weights), model.config), ids, calls(3, 20, 8, beyond), 8)"""


def test_beyond_the_limit_a_cache_saves_nothing_or_moves_rarely_or_is_wrong(open_page):
    page = open_page(figure="cache_steps")
    said, end = page.locator("output"), page.get_by_role("slider")
    assert "Call 8: 1 token computed with the cache, 10 so far (24 if" in said.inner_text()
    assert "It writes “␣a”; without a cache the same 8 tokens say “␣not”" in said.inner_text()
    page.get_by_role("button", name="moves by half").click()
    assert "13 so far (24 if" in said.inner_text()
    assert "as without a cache on the same 5 tokens" in said.inner_text()
    page.get_by_role("button", name="moves by one").click()
    assert "Call 8: 8 tokens computed with the cache, 24 so far" in said.inner_text()
    end.press("Home")
    assert "Call 1 (prefill): 3 tokens" in said.inner_text()
    assert page.locator("tr", has_text="bytes").inner_text().split()[2:] == ["0", "3,072"]


def test_a_text_is_written_on_beyond_the_window_and_begun_again(open_page):
    page = open_page(figure="write_on")
    assert "1,024 of 1,024" in page.locator("output").inner_text()
    page.get_by_role("button", name="0.02", exact=True).click()
    assert page.locator(".share").last.inner_text().startswith("0.")
    assert "1,024 of 1,024" not in page.locator("output").inner_text()
    page.get_by_role("button", name="0", exact=True).click()
    assert "1 of 1,024" in page.locator("output").inner_text()
    for _ in range(5):
        page.get_by_role("button", name="Write twenty").click()
    page.locator(".written", has_text=re.compile(".{101}", re.DOTALL)).wait_for()
    page.get_by_role("button", name="As it was").click()
    assert page.locator(".written").inner_text() == "…"
    page.locator("tbody button").first.click()
    assert page.locator(".written").inner_text() != "…"


TRIAL = """({ weights, config }, ids) => {
  const model = new nextToken.GPT(nextToken.readWeights(weights), config);
  return ids.map((id) => model.read(id));
}"""


@pytest.mark.parametrize("activation", ["gelu_tanh", "relu", "silu"])
def test_another_activation_and_a_table_of_its_own_at_the_end(open_page, tmp_path, activation):
    config = GPTConfig(50, context_length=16, channels=8, layers=2, heads=2, tied=False)
    config = replace(config, activation=activation)
    model = GPT(config, generator=torch.Generator().manual_seed(0))
    pretrained.save(model, tmp_path)
    files.save(BytePairTokenizer([]), tmp_path / "tokenizer.json")
    page = open_page("attention", "gpt")
    page.add_script_tag(content=as_script(tmp_path))
    ids = [*range(0, 48, 3)]
    found = page.evaluate(f"({TRIAL})(nextToken.model, {ids})")
    with torch.no_grad():
        logits = model.eval()(torch.tensor([ids]))[0]
    assert torch.allclose(torch.tensor(found), logits, atol=1e-4, rtol=0)


def test_a_page_of_ones_own_opens_from_a_folder_and_shows_tags_as_text(context, tmp_path):
    """Of the smallest window, on a phone, without an error."""
    folder = tmp_path / ("<script>alert(1)<" + 99 * "x")
    config = GPTConfig(257, context_length=1, channels=8, layers=1, heads=1)
    pretrained.save(GPT(config, generator=torch.Generator().manual_seed(0)), folder, end=256)
    files.save(BytePairTokenizer([], {END: 256}), folder / "tokenizer.json")
    for name in ("run.toml", "log.csv"):  # of a run that has no line yet
        (folder / name).touch()
    write_page(folder, tmp_path / "page.html", order=None)
    with pytest.raises(ValueError, match=r"log\.csv of `train` beside --ngram"):
        write_page(folder, tmp_path / "other.html", order=2)
    page, asked = context.new_page(), []
    for event in ("dialog", "pageerror", "request"):
        page.on(event, lambda what: asked.append(str(what)))
    page.set_viewport_size(PHONE)
    page.goto((tmp_path / "page.html").as_uri())
    page.get_by_role("button", name="Write twenty").click()
    assert page.locator("h1").inner_text() == f"{folder.name} writes"
    assert page.locator(".written").inner_text() != "…"
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert len(asked) == 1  # the page itself
    page.close()


def test_both_places_move_and_their_product_stays(open_page):
    page = open_page(figure="position_clock")
    said = page.locator("output")
    product = said.inner_text().split(":")[-1]
    earlier = page.get_by_role("slider", name="the earlier place")
    for _ in range(5):
        earlier.press("ArrowRight")
    assert said.inner_text().startswith("places 25 and 28, 3 apart")
    assert said.inner_text().split(":")[-1] == product
    assert earlier.get_attribute("aria-valuemin") == "0"
    later = page.get_by_role("slider", name="the later place")
    box = later.bounding_box()
    later.hover()
    page.mouse.down()
    for x in (box["x"] + 41, 0):  # where the earlier one has no place
        page.mouse.move(x, box["y"])
        assert said.inner_text().startswith("places 23 and 26, 3 apart")
    page.mouse.up()
    fast = float(page.locator(".blue").first.get_attribute("x2"))
    assert fast == pytest.approx(0.95 * 46 * math.sin(26))
    page.get_by_role("button", name="one alone").click()
    earlier.press("ArrowLeft")
    assert ", 4 apart" in said.inner_text()
    assert said.inner_text().split(":")[-1] != product


def test_a_band_of_two_needs_five_layers_and_one_open_cell_saves_some(open_page):
    page = open_page(figure="mask_reach")
    said = page.locator("output")
    assert "2 of 6" in said.inner_text()
    page.get_by_role("button", name="5", exact=True).click()
    assert "6 of 6" in said.inner_text()
    page.get_by_role("button", name="2", exact=True).click()
    page.get_by_role("button", name="output 6 knows nothing of input 1").click()
    assert "4 of 6" in said.inner_text()  # 4, 5 and itself, and the first


def test_a_step_of_attention_begins_as_its_chapter_has_it(open_page):
    page = open_page(figure="attention_step")
    assert page.locator("tbody .share").all_inner_texts() == ["0.12", "0.67", "0.21", *["0.00"] * 3]
    assert "0.67" in page.locator("output").inner_text()


def test_a_number_is_changed_by_hand_and_by_key_and_comes_back(open_page):
    page = open_page(figure="attention_step")
    number = page.get_by_role("spinbutton", name="query of sat, number 1")
    number.click(position={"x": 10, "y": 4})
    assert number.inner_text() == "2"
    for _ in range(9):
        number.press("ArrowDown")
    assert number.inner_text() == "−3"
    page.get_by_role("button", name="cat, seen").click()
    assert page.locator("tbody .share").nth(1).inner_text() == "0.00"
    page.get_by_role("button", name="As it was").click()
    assert page.locator("tbody .share").nth(1).inner_text() == "0.67"


def test_without_the_root_the_best_key_takes_more(open_page):
    page = open_page(figure="attention_step")
    page.get_by_role("button", name="1", exact=True).click()
    share = math.exp(3) / (1 + math.exp(3) + math.exp(1))
    assert page.locator("tbody .share").nth(1).inner_text() == f"{share:.2f}"
    page.get_by_role("button", name="sat, seen").click()
    page.get_by_role("button", name="the, seen").click()
    page.get_by_role("button", name="cat, seen").click()  # the last that is seen stays
    assert page.locator("tbody .share").nth(1).inner_text() == "1.00"


def test_a_story_costs_a_gpt_and_the_perfect_reader_what_they_cost_in_src(open_page):
    page, run = open_page(figure="story"), open_run(SMALLEST)
    radios = page.get_by_role("radio")
    words = radios.all_inner_texts()
    radios.last.click()
    said = [*map(float, re.findall(r"([\d.]+) nats", page.locator(".sums").inner_text()))]
    ids = torch.tensor([run.end, *run.tokenizer.encode(" ".join(words[:-1])), run.end])
    assert said[0] == pytest.approx(-run.world.log_prob(words), abs=0.05)
    nats = scores_of_ids(run, [ids], stride=None, n_bytes=None)[0].nats
    assert said[1] == pytest.approx(nats, abs=0.05)


def test_a_story_is_told_by_hand_and_by_key_and_asked_and_comes_back(open_page):
    page = open_page(figure="story")
    radios, said = page.get_by_role("radio"), page.locator("output")
    start, button = radios.all_inner_texts(), lambda name: page.get_by_role("button", name=name)
    radios.nth(5).press("Home")
    page.keyboard.press("ArrowRight")
    assert "“has” came" in said.inner_text()
    radios.nth(3).click()
    button("apple:").click()
    assert " ".join(radios.all_inner_texts()) == "ann has the apple . …"
    assert page.locator(".never > :first-child").all_inner_texts() == ["ann", "say", "in"]
    button("New text").click()
    for word in ("bob", "kite", "gus", "attic"):
        button(f"{word}:").press("Enter")
    button("Who has the kite ?").click()
    button("bob:").click()
    assert " ".join(radios.all_inner_texts()).endswith("attic . who has the kite ? bob . <end>")
    assert "“bob” came" in said.inner_text()
    button("Take back").click()
    button("Take back").click()
    assert radios.last.inner_text() == "…"
    button("Go on by chance").click()
    assert radios.last.inner_text() == "<end>"
    button("As it was").click()
    assert radios.all_inner_texts() == start


def test_the_first_screen_has_the_story_and_what_a_touch_loads(browser, address):
    for size in (PHONE, {"width": 1440, "height": 900}):
        context = browser.new_context(viewport=size, has_touch=True, is_mobile=size is PHONE)
        visit = Visit(context, f"{address}/book/index.html")
        page, still = visit.page, visit.page.locator("#story")
        assert page.locator(".go a").count() == 3
        for each in (*page.locator(".go a").all(), still.get_by_role("button"), still):
            box = each.bounding_box()
            assert box["height"] >= 44
            assert box["y"] + box["height"] <= size["height"]
        assert not [url for url in visit.asked if "/live/" in url]
        still.get_by_role("button").tap()
        page.get_by_text("GPT of 1,400 weights").wait_for()
        still.wait_for(state="hidden")
        page.get_by_role("button", name="118").tap()
        page.get_by_text("GPT of 118,464 weights").wait_for()
        assert not any("c16-" in url or "c128-" in url for url in visit.asked)
        assert visit.outside + visit.errors == []
        context.close()


@pytest.mark.parametrize("figure", sorted(MODULES))
def test_a_finger_pulls_a_handle_and_the_page_stays(open_page, figure):
    page = open_page(figure=figure)
    send = page.context.new_cdp_session(page).send
    for handle in page.locator(".handle").all()[:1]:
        page.add_style_tag(content="body { padding: 900px 0 }")
        page.evaluate("void (onpointercancel = () => (document.title = 'lost'))")
        handle.evaluate("handle => handle.scrollIntoView({ block: 'center' })")
        box, before = handle.bounding_box(), int(handle.get_attribute("aria-valuenow"))
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        for n, kind in enumerate(["touchStart", *["touchMove"] * 8, "touchEnd"]):
            points = [{"x": x + 16 * n, "y": y - 16 * n}] * (kind != "touchEnd")
            send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        assert abs(int(handle.get_attribute("aria-valuenow")) - before) > 1
        assert page.title() == ""  # the page has not taken it away, to scroll


@pytest.mark.parametrize("figure", sorted(MODULES))
def test_a_figure_is_small_and_fits_a_phone(open_page, figure):
    files = (ROOT / "live" / f"{name}.js" for name in MODULES[figure])
    assert sum(file.stat().st_size for file in files if file.exists()) < 150_000
    page = open_page(figure=figure)
    style = (ROOT / "live" / "touch.css").read_text(encoding="utf-8")
    page.add_style_tag(content=f"{style} body {{ margin: 16px }}")
    page.evaluate("document.querySelector('main').className = 'touch'")
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 390
    pressed = page.locator(".choice [aria-pressed=true]").count()
    assert pressed + (figure == "word_lattice") == page.locator(".choice[role=group]").count()
