"""What is executed before the build: every chapter, once, and only what changed."""

import importlib.util

import pytest
from chapters import ROOT, chapters


@pytest.fixture(scope="module")
def execute():
    spec = importlib.util.spec_from_file_location("execute", ROOT / "_ext" / "execute.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_chapter_is_executed_once(execute):
    assert sorted(execute.chapters()) == chapters()


def test_files_are_found_however_deep(execute):
    contents = {"root": "a", "parts": [{"chapters": [{"file": "b", "sections": [{"file": "c"}]}]}]}
    assert execute.files_of(contents) == ["b", "c"]
