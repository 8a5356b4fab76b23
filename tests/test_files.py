"""`src.tools.files`: a file is there whole or not at all."""

import os
import stat

import pytest

from src.tools.files import replacing, write_text


def test_a_text_is_written_as_it_is(tmp_path):
    write_text(tmp_path / "a", "né\r\n")
    assert (tmp_path / "a").read_bytes() == b"n\xc3\xa9\r\n"


def test_the_old_file_stands_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    with replacing(path) as partial:
        partial.write_text("half")
        assert path.read_text() == "old"
        partial.write_text("new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def fail_halfway(path):
    with replacing(path) as partial:
        partial.write_text("half")
        raise OSError("planted: disk full")


@pytest.mark.parametrize("before", ["old", None])
def test_after_an_error_all_is_as_it_was(tmp_path, before):
    path = tmp_path / "a"
    if before:
        path.write_text(before)
    with pytest.raises(OSError, match="planted"):
        fail_halfway(path)
    assert [p.read_text() for p in tmp_path.iterdir()] == ([before] if before else [])


@pytest.fixture(params=[0o022, 0o027])
def umask(request):
    """The umask of this process, for one test."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_a_file_is_as_readable_as_the_umask_lets_it_be(tmp_path, umask):
    path, partial = tmp_path / "a", tmp_path / "a.part"
    partial.touch(0o600)  # what a killed process left
    for chosen in (None, partial):
        with replacing(path, partial=chosen) as new:
            new.touch(0o600)  # a writer that keeps its files to itself
        assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        write_text(tmp_path / "nowhere" / "a", "text")
