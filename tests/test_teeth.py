"""`make teeth` tells assertions that bite from those that cannot."""

import ast
import random
import textwrap
from multiprocessing import get_context
from pathlib import Path

import psutil
import pytest
from teeth import snapshots
from teeth.called import called_by, edited, own_key, parts_of
from teeth.chapter import statements, upstream
from teeth.mutations import KINDS, mutated, mutations
from teeth.noise import DRAWS, UnchangedError, noise, rows
from teeth.search import examine

pytestmark = pytest.mark.weekly

HEADER = (Path(__file__).parents[1] / "book/likelihood/surprise.md").read_text().split("\n(")[0]

CELLS = {
    "worked": """
        def mean(numbers):
            return sum(numbers) / len(numbers)

        weights = [1.0, 2.0, 5.0]
        assert mean(weights) == 8 / 3
    """,
    "tautology": """
        left = [3.0, 4.0]
        total = sum(left)
        shares = [each / total for each in left]
        assert abs(sum(each / sum(shares) for each in shares) - 1) < 1e-9
    """,
    "own name": """
        kept = 7.0
        assert kept == 7.0
    """,
    "lucky": """
        import random
        draws = [random.Random(0).random() for _ in range(3)]
        assert 0.844 < max(draws) < 0.845
    """,
    "record": """
        import json
        recorded = json.loads('{"loss": [1.0, 2.0]}')
        losses = recorded["loss"]
        assert losses[0] < losses[1]
    """,
    "intended": """
        assert 1 == 2
    """,
    "given": """
        table = [[1, 2], [3, 4]]
        assert table[1][0] == 3
    """,
    "raises": """
        def squares(count):
            return [number**2 for number in range(count + 0)]

        assert squares(3)[2] is not None
    """,
    "in a function": """
        def checked(count):
            numbers = list(range(count))
            total = sum(numbers)
            assert total == 10

        checked(2 + 3)
    """,
    "loop": """
        def doubled(x):
            return x + x

        for number in (1, 2, 3):
            assert doubled(number) == 2 * number
    """,
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """{name of a cell: what is known of its only assertion}."""
    root = tmp_path_factory.mktemp("book")
    path = root / "book" / "part" / "planted.md"
    path.parent.mkdir(parents=True)
    text, first = HEADER + "\n\n# Planted\n", {}
    for name, cell in CELLS.items():
        tags = ":tags: [raises-exception]\n" if name == "intended" else ""
        text += f"\n```{{code-cell}} ipython3\n{tags}{textwrap.dedent(cell).strip()}\n```\n"
        first[text.count("\n")] = name
    path.write_text(text, encoding="utf-8")
    with get_context("spawn").Pool(1) as pool:
        result = pool.apply(examine, (path, root, 6.0))
    assert result["error"] is None
    return {first[min(f for f in first if f >= row["line"])]: row for row in result["assertions"]}


@pytest.mark.parametrize("name", ["worked", "loop", "given", "raises", "in a function"])
def test_an_assertion_that_guards_something_is_killed(found, name):
    assert found[name]["killed"] is not None
    assert not found[name]["fragile"]


@pytest.mark.parametrize("name", ["tautology", "own name"])
def test_an_assertion_that_cannot_fail_is_not(found, name):
    assert found[name]["held"] is True
    assert found[name]["killed"] is None


def test_an_assertion_that_another_seed_breaks_is_fragile(found):
    assert found["lucky"]["fragile"]


def test_an_assertion_on_a_record_is_told_apart(found):
    assert [name for name, row in found.items() if row["record"]] == ["record"]


def test_an_intended_failure_is_no_assertion(found):
    assert "intended" not in found


def test_every_mutation_changes_the_code():
    tree = ast.parse(
        "def f(a, b, *, c=1):\n    d = a * 2 - b if not c < 3 else g(a, b, k=4) + (~a | -b % c)\n"
        "    a.append(d and c or f'of {d:.3f}')\n    return d"
    ).body[0]
    found = mutations(tree)
    assert {each.kind for each in found} == set(KINDS)
    for each in found:
        assert ast.unparse(mutated(tree, each)) != ast.unparse(tree)


def test_seeds_and_assertions_are_left_alone():
    source = "x = draw(torch.Generator().manual_seed(3), seed=4)\nassert f(5) == 6"
    changed = {ast.unparse(mutated(ast.parse(source), m)) for m in mutations(ast.parse(source))}
    assert all("manual_seed(3)" in text for text in changed if "draw" in text and "noise" in text)
    assert all("assert f(5) == 6" in text for text in changed)


@pytest.fixture(autouse=True)
def as_a_changed_run_begins():
    DRAWS.seed(0)


@pytest.mark.parametrize(
    "value", [3, 0.5, True, "a text", [1.0, 2.0], {"a": 1, "b": 2}, (1, "b"), {3, 4}]
)
def test_noise_is_of_the_same_kind_and_another_value(value):
    assert type(noise(value)) is type(value)
    assert noise(value) != value


def test_noise_has_the_shape_and_the_scale():
    torch = pytest.importorskip("torch")
    tensor = torch.full((50, 40), 7.0) + torch.arange(40.0)
    other = noise(tensor)
    assert other.shape == tensor.shape
    assert not other.equal(tensor)
    assert abs(float(other.mean() - tensor.mean())) < 1
    assert 0.9 < float(other.std() / tensor.std()) < 1.1
    assert sorted(rows(tensor[0]).tolist()) == tensor[0].tolist() != rows(tensor[0]).tolist()


@pytest.mark.parametrize("value", [None, random, iter([])])
def test_what_noise_cannot_reach_is_no_mutation(value):
    with pytest.raises(UnchangedError):
        noise(value)


def planted(folder, cell):
    """A chapter of one cell, under `folder`."""
    path = folder / "book" / "x.md"
    path.parent.mkdir()
    path.write_text(f"{HEADER}\n\n```{{code-cell}} ipython3\n{cell}\n```\n", encoding="utf-8")
    return path


def test_only_what_leads_to_an_assertion_is_upstream(tmp_path):
    cell = "a = 1\nb = 2\nc = a + 1\nxs = []\nxs.append(c)\nassert xs == [2]"
    assert upstream(statements(planted(tmp_path, cell), tmp_path), 5) == [5, 4, 3, 2, 0]


def test_what_is_made_of_a_record_is_of_the_record(tmp_path):
    cell = (
        "import json\nfolder = Path.cwd()\nfresh = [3]\n"
        "recorded = json.loads((folder / 'x.json').read_text())\n"
        "def last():\n    return recorded[-1]\n"
        "assert last() == 2\nassert fresh == [3]"
    )
    found = statements(planted(tmp_path, cell), tmp_path)
    assert [each.of_record for each in found if each.assertions] == [True, False]


def outcomes_of_change(path, root, words):
    """{text of an assertion: whether it held} in a run with the first change of these words."""
    found = statements(path, root)
    base = snapshots.Snapshots(found, path.parent)
    base.run()
    every = ((n, each, None) for n, one in enumerate(found) for each in mutations(one.tree))
    change = next(each for each in every if each[1].text == words)
    outcomes, _ = base.changed([change], len(found) - 1)
    base.close()
    return {a.text: outcomes.get(a.key) for each in found for a in each.assertions}


def test_a_run_goes_on_after_an_error_and_what_it_leaves_behind_is_ended(tmp_path):
    cell = (
        "import subprocess, sys\nfrom pathlib import Path\nseconds = 60\n"
        "code = f'import time; time.sleep({seconds})  # {str(Path.cwd())}'\n"
        "left = subprocess.Popen([sys.executable, '-c', code])\n"
        "weights = [4, 2]\nshare = 1 / weights[1]\nother = share + 1\n"
        "assert other == 1.5\nassert max(weights) == 4\nassert share == 0.5"
    )
    path = planted(tmp_path, cell)
    with get_context("spawn").Pool(1) as pool:
        outcomes = pool.apply(outcomes_of_change, (path, tmp_path, "0 for 2"))
        running = [each.info["cmdline"] or [] for each in psutil.process_iter(["cmdline"])]
    assert outcomes == {"other == 1.5": None, "max(weights) == 4": True, "share == 0.5": None}
    mine = [each for each in running if str(path.parent) in " ".join(each)]
    assert len(mine) == 1  # that of the base run, which is as the chapter left it


def test_only_an_edit_of_what_a_chapter_has_called_makes_its_row_old(tmp_path):
    (tmp_path / "src").mkdir()
    module = tmp_path / "src" / "a.py"
    text = 'K = 1\ndef f():\n    """It."""\n    return K + g()\n'
    text += "def g():\n    return 1\ndef h():\n    return 2\n"
    module.write_text(text)
    path = planted(tmp_path, "from src.a import f\nassert f() == 2")
    codes = [c for c in compile(text, str(module), "exec").co_consts if hasattr(c, "co_code")][:2]
    result = {"key": own_key(path, tmp_path), "called": called_by(codes, tmp_path)}
    assert [*result["called"]] == ["src/a.py:", "src/a.py:f", "src/a.py:g"]

    def after(old, new):
        module.write_text(text.replace(old, new))
        parts_of.cache_clear()
        return edited(result, path, tmp_path)

    assert after("2", "3") == after("It", "This") == after("def f", "# a comment\ndef f") == []
    assert after("return 1", "return 3") == ["src/a.py:g"]
    assert after("K = 1", "K = 2") == ["src/a.py:"]
    path.write_text(path.read_text().replace("2", "3"))
    assert after("", "") == ["cells or data"]
