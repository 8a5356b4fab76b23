"""How is a file written so that nobody ever sees half of it, whatever happens meanwhile?

    everything into a new file beside it, fsync, rename                      (rename is atomic)

At every moment the name stands for one whole file, the old or the new.
"""

import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replacing(path: str | os.PathLike[str], *, partial: Path | str | None = None) -> Iterator[Path]:
    """A new path to write to, which takes the place of `path` when the block ends without an error.

    After an error `path` is as it was, and nothing else is left behind. A process that is killed
    leaves the new path behind. The file may be read by whom the umask lets read a new file, even
    if what writes it, as safetensors does, keeps it to its owner.

    Args:
        path: the file; its folder is there.
        partial: the new path, in the same folder; None: a name that no other process chooses. A
            name of one's own is overwritten by the next to choose it.
    """
    path = Path(path)
    unique = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    partial = Path(partial) if partial else unique
    try:
        yield partial
        partial.chmod(_mode_of_new())
        with open(partial, "rb+") as file:
            os.fsync(file.fileno())  # the bytes before the name: a power cut may come between
        os.replace(partial, path)
        _sync_folder(path.parent)
    finally:
        with suppress(OSError):
            partial.unlink()


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text as UTF-8, newlines as they are, whole or not at all."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8", newline="")


def sha256_of(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of a file, in 64 hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _mode_of_new() -> int:
    """Who may read and write a new file, by the umask, which can only be read by setting it."""
    umask = os.umask(0o077)
    os.umask(umask)
    return 0o666 & ~umask


def _sync_folder(folder: Path) -> None:
    """Have the new name on the disk as well, where a folder can be opened (not on Windows)."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
