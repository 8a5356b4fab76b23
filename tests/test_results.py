"""Each record says what made it, and results/README.md says which chapter reads it."""

import json
import re
import subprocess
import tomllib
from hashlib import sha256 as digest

import pytest
from chapters import ROOT, Page, chapters
from dependencies import code_of
from provenance import provenance, told

RESULTS = ROOT / "results"
RELEASE = "0.1.0, d50c3c4"
READ = re.compile(r"results\"?\)?\s*/\s*\"(\w+)\"")
WRITTEN_BY = {"README.md": "hand", "gpu.md": "hand", "made.toml": "hand", "teeth.md": "make teeth"}
SAID = {"commit", "clean", "command", "python", "torch", "flags", "processor", "threads", "date"}


def folders_read(code):
    """Folders of results from which a program reads."""
    return set(READ.findall(code))


def unsaid(files, sums):
    """Records that neither say what made them nor are as they were when that was written down.

    Args:
        files: {path: text}.
        sums: {path: SHA-256} of those that do not say it.
    """
    for path in sorted(sums.keys() - files.keys()):
        yield f"{path} is gone"
    of_records = {path.split("/")[0] for path, text in files.items() if '"provenance"' in text}
    for path, text in files.items():
        if path.split("/")[0] in of_records:
            if path.endswith(".json") and SAID - json.loads(text)["provenance"].keys():
                yield f"{path} does not say all of what made it"
        elif sums.get(path) != digest(text.encode()).hexdigest():
            yield f"{path} does not say what made it, and is not as it was"


# ---- what is there ---------------------------------------------------------------------------


def files():
    """{path: text} of all records of experiments."""
    found = (path for name in ("*/*.json", "*/table.md") for path in RESULTS.glob(name))
    return {path.relative_to(RESULTS).as_posix(): path.read_text("utf-8") for path in found}


def made():
    """{path: commit} of the records that do not say it, and {path: SHA-256}."""
    tables = tomllib.loads((RESULTS / "made.toml").read_text(encoding="utf-8"))
    commits = {path: commit for commit, sums in tables.items() for path in sums}
    return commits, {path: one for sums in tables.values() for path, one in sums.items()}


def maker(name, commits):
    """What made a record, as the table says it."""
    if name in ("benchmarks", "cards"):
        return "each page says it"
    path = RESULTS / name / "result.json"
    found = json.loads(path.read_text("utf-8")) if path.exists() else {}
    if "provenance" in found:
        return found["provenance"]["commit"][:7]
    of_files = {p.split("/")[1]: commits[p] for p in commits if p.split("/")[0] == name}
    of_files = {file: RELEASE if one in RELEASE else one for file, one in of_files.items()}
    usual = of_files["table.md"]
    others = [f" (`{file}`: {one})" for file, one in of_files.items() if one != usual]
    return usual + "".join(others)


def rows():
    page = Page("README.md", (RESULTS / "README.md").read_text(encoding="utf-8"))
    cells = [[cell.content for cell in cells] for _, cells in page.table_rows]
    return {
        name.strip("`"): (set(re.findall(r"`([\w/]+)`", read)), made)
        for name, _, read, made in cells
    }


# ---- planted defects -------------------------------------------------------------------------


def test_a_record_that_does_not_say_what_made_it_or_is_gone_is_found():
    sums = {f"{name}/b.json": digest(b"old").hexdigest() for name in "acd"}
    said = json.dumps({"provenance": dict.fromkeys(SAID)})
    found = {"a/b.json": "old", "c/b.json": "edited", "e/b.json": said}
    assert list(unsaid(found, sums)) == [
        "d/b.json is gone",
        "c/b.json does not say what made it, and is not as it was",
    ]
    said = said.replace("commit", "committed")
    assert list(unsaid({"e/b.json": said}, {})) == ["e/b.json does not say all of what made it"]


# ---- the records -----------------------------------------------------------------------------


def test_each_record_says_what_made_it():
    found = list(unsaid(files(), made()[1]))
    assert not found, "\n".join(found)


def test_the_table_of_records_says_who_reads_them_and_what_made_them():
    folders = {path.name for path in RESULTS.iterdir() if path.is_dir()}
    readers = {}
    for path in chapters():
        page = path.relative_to(ROOT / "book").with_suffix("").as_posix()
        for name in folders_read(code_of(path)):
            readers.setdefault(name, set()).add(page)
    commits, _ = made()
    expected = {name: (readers.get(name, set()), maker(name, commits)) for name in folders}
    assert rows() == expected


def test_each_folder_is_of_a_program():
    programs = {path.stem for path in ROOT.glob("experiments/*.py") if path.stem[0] != "_"}
    assert {path.name for path in RESULTS.iterdir() if path.is_dir()} == {
        *programs,
        "benchmarks",
        "cards",
    }
    assert {path.name for path in RESULTS.iterdir() if path.is_file()} == WRITTEN_BY.keys()


# ---- what a new record is made with ----------------------------------------------------------


@pytest.fixture
def repository(tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "a.py").write_text("a = 1\n")
    (tmp_path / "results" / "b.md").write_text("b")
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for arguments in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "Begin"]):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    return tmp_path


def test_a_record_does_not_make_the_tree_unclean_and_an_edit_does(repository):
    (repository / "results" / "b.md").write_text("c")
    found = provenance("make it", repository)
    assert found.keys() >= SAID
    assert re.fullmatch("[0-9a-f]{40}", found["commit"])
    assert found["clean"]
    assert f"commit {found['commit'][:12]}," in told(found)
    (repository / "a.py").write_text("a = 2\n")
    found = provenance("make it", repository)
    assert not found["clean"]
    assert f"commit {found['commit'][:12]}+," in told(found)


def test_without_a_repository_no_commit_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    found = provenance("make it", tmp_path)
    assert found["commit"] is found["clean"] is None
    assert "no commit" in told(found)
