"""`src.files`: a file is there whole or not at all."""

import pytest

from src.files import replacing, write_text


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


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        write_text(tmp_path / "nowhere" / "a", "text")
