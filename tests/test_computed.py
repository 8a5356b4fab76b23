"""The results of experiments are kept, and never handed out when something has changed."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from experiments.__main__ import main
from experiments.shared import cells as module
from experiments.shared.cells import Cells

ROOT = Path(__file__).parents[1]
FILES = {
    "experiments/coins.py": """
        from src.coin import toss

        SIDES = 2
        CHAPTER = ROOT / "book/part/coins.md"
        """,
    "experiments/shared/nothing.py": "",
    "src/__init__.py": "",
    "src/coin.py": "from .draw import draw\n",
    "src/draw.py": "def draw(): return 1\n",
    "src/other.py": "",
    "src/words.txt": "heads tails\n",
    "book/part/coins.md": "# Coins\n\n```{code-cell}\nimport src.other\n```\n",
    "results/coins/recipe.toml": "steps = 1\n",
    "results/coins/result.json": "{}",
    "results/others/result.json": "{}",
}


@dataclass(frozen=True)
class Settings:
    steps: int = 3


COUNTED = []  # one for each time that some work was done


def count(cells, side):
    COUNTED.append(side)
    return {"side": side, "steps": cells.settings.steps, "state": torch.arange(3)}


def outer(cells, side):
    return [cells(count, side=side)["side"], sum(i * i for i in range(200_000))]


def refuse(cells):
    raise ArithmeticError("no")


def write(cells, folder, side):
    COUNTED.append(side)
    (folder / "deep").mkdir()
    (folder / "deep" / "side.txt").write_text(side)


@pytest.fixture
def project(tmp_path):
    COUNTED.clear()
    for name, text in FILES.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(line.removeprefix(" " * 8) for line in text.split("\n")))
    return tmp_path / "project"


def new(project, settings=None, jobs=1):
    path, home = project / "experiments" / "coins.py", project / "_build" / "coins"
    return Cells(path, settings or Settings(), home, jobs=jobs, root=project)


def reads(project, folder):
    """Let the experiment name a folder of records that it reads."""
    own = project / "experiments" / "coins.py"
    own.write_text(own.read_text() + f'\nOWN = "{folder}"\n')


def times(project, **options):
    """How often the work is done when it is asked for once more."""
    COUNTED.clear()
    new(project, **options)(count, side="heads")
    return len(COUNTED)


def test_what_was_found_is_found_again_and_not_computed_again(project):
    found = new(project)(count, side="heads")
    again = new(project)(count, side="heads")
    assert COUNTED == ["heads"]
    assert again.pop("state").equal(found.pop("state"))
    assert found == again == {"side": "heads", "steps": 3}


def test_other_arguments_settings_and_work_are_other_results(project):
    assert times(project) == 1
    assert new(project)(count, side="tails")["side"] == "tails"
    assert new(project, Settings(steps=4))(count, side="heads")["steps"] == 4
    assert new(project)(outer, side="heads")[0] == "heads"
    assert times(project) == 0


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("src/draw.py", "return 1", "return 0"),  # what that imports in turn
        ("src/words.txt", "tails", "edge"),  # what a module may read
        ("book/part/coins.md", "import src", "x = 1; import src"),  # a chapter that is run
        ("src/other.py", "", "x = 1"),  # what the chapter imports
        ("results/coins/recipe.toml", "1", "2"),
        ("results/others/result.json", "{}", "[]"),  # a record of another one, if it is named
    ],
)
def test_after_a_change_it_is_computed_again_and_after_its_return_not(project, name, old, new):
    reads(project, "others" if "others" in name else "coins")
    path, before = project / name, (project / name).read_text()
    assert times(project) == 1
    path.write_text(before.replace(old, new, 1))
    assert times(project) == 1
    assert times(project) == 0
    path.write_text(before)
    assert times(project) == 0


@pytest.mark.parametrize(
    "name", ["results/coins/result.json", "results/others/result.json", "src/unused.py"]
)
def test_what_it_does_not_read_does_not_count(project, name):
    reads(project, "coins")
    assert times(project) == 1
    (project / name).write_text("[]")
    assert times(project) == 0


def test_another_environment_is_another_result(project, monkeypatch):
    import _ext.dependencies as dependencies

    assert times(project) == 1
    monkeypatch.setattr(dependencies, "environment", lambda: "another torch")
    assert times(project) == 1


@pytest.mark.parametrize("left", [0, 10, 0.5, 0.99])
def test_a_file_that_was_cut_is_computed_again(project, left):
    assert times(project) == 1
    (path,) = (project / "_build" / "coins").glob("*.pt")
    whole = path.read_bytes()
    path.write_bytes(whole[: left if isinstance(left, int) else int(left * len(whole))])
    assert times(project) == 1
    assert times(project) == 0


def test_work_that_fails_leaves_nothing(project):
    for _ in range(2):
        with pytest.raises(ArithmeticError):
            new(project)(refuse)
    assert list((project / "_build" / "coins").iterdir()) == []


def test_what_was_computed_while_the_code_changed_is_not_kept(project):
    cells = new(project)
    (project / "src/draw.py").write_text("def draw(): return 0\n")
    with pytest.raises(RuntimeError, match="has changed"):
        cells(count, side="heads")
    assert list((project / "_build" / "coins").iterdir()) == []


def test_seconds_are_counted_once_whoever_asks(project):
    cells = new(project)
    cells(outer, side="heads")
    asked = cells.seconds
    assert asked == pytest.approx(cells.inside)  # outer without what count took, and count
    cells(count, side="heads")
    assert cells.seconds == asked > 0
    again = new(project)
    again(outer, side="heads")
    assert again.seconds == asked


def test_a_folder_is_filled_once(project):
    folder = new(project).folder(write, side="heads")
    assert (folder / "deep" / "side.txt").read_text() == "heads"
    assert new(project).folder(write, side="heads") == folder
    assert COUNTED == ["heads"]


@pytest.mark.parametrize("cut", ["deep/side.txt", None])
def test_a_folder_that_is_no_longer_whole_is_filled_again(project, cut):
    folder = new(project).folder(write, side="heads")
    if cut:
        (folder / cut).write_text("hea")
    else:
        folder.rename(folder.with_name("elsewhere"))
    again = new(project).folder(write, side="heads")
    assert (again / "deep" / "side.txt").read_text() == "heads"
    assert len(COUNTED) == 2


def test_two_that_fill_the_same_folder_do_not_meet(project):
    def write_after_another(cells, folder, side):
        if not COUNTED:
            write(new(project), folder, side)
            other = new(project).folder(write_after_another, side=side)
            assert other != folder
        else:
            write(cells, folder, side)

    folder = new(project).folder(write_after_another, side="heads")
    assert (folder / "deep" / "side.txt").read_text() == "heads"
    assert len(COUNTED) == 2


def test_several_processes_compute_what_is_missing(project, monkeypatch):
    def count_alone(cells, side):
        COUNTED.append((side, cells.jobs))
        return side

    monkeypatch.setattr(module, "ProcessPoolExecutor", lambda *_, **__: ThreadPoolExecutor(1))
    new(project)(count_alone, side="tails")
    sides = [{"side": side} for side in ("heads", "tails", "edge")]
    assert new(project, jobs=2).all(count_alone, sides) == ["heads", "tails", "edge"]
    assert COUNTED == [("tails", 1), ("heads", 1), ("edge", 1)]


# ---- the experiments -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reversal", "--quick", "--to", str(ROOT / "results")], "a quick run is no record"),
        (["reversals"], "got 'reversals'"),
    ],
)
def test_a_quick_record_and_an_unknown_experiment_are_refused(capsys, arguments, message):
    with pytest.raises(SystemExit):
        main(arguments)
    assert message in capsys.readouterr().err
