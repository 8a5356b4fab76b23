"""How does a file from the network come to this machine whole, once, and as it was published?

It is fetched beside its place, compared with the checksum that is known in advance, and then put
there; until then no file of that name exists. Where there is no network, the error says what to do.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from .files import replacing, sha256_of


def download(
    url: str, destination: str | os.PathLike[str], *, sha256: str, timeout: float = 30.0
) -> Path:
    """The path of a file that has the given checksum, fetched unless it is there already.

    The bytes go to a temporary file beside the destination, which takes its place in one step after
    the checksum has been found right. So no other process ever sees half a file, a failure leaves
    the files there as they were, and two processes that fetch at once put the same bytes there.

    Args:
        url: an http or https address.
        destination: the file to write; its folder is made if needed.
        sha256: the expected digest, 64 hexadecimal digits.
        timeout: seconds without a single byte after which to give up.

    Returns:
        `destination` as a path.

    Raises:
        DownloadError: the file could not be fetched whole, or is not the expected one.
        ValueError: `url` or `sha256` is not of the form above.
    """
    if not re.fullmatch("[0-9a-f]{64}", sha256):
        raise ValueError(f"sha256 must be 64 hexadecimal digits in lower case, got {sha256!r}")
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"url must start with http:// or https://, got {url!r}")
    from pooch import HTTPDownloader
    from tqdm import tqdm  # plain text in a notebook too; pooch's own bar asks for ipywidgets

    destination = Path(destination)
    if _sha256_if_there(destination) == sha256:
        return destination
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with replacing(destination) as partial:
            with tqdm(desc=url.rsplit("/", 1)[-1], total=1, unit="B", unit_scale=True) as bar:
                HTTPDownloader(bar, chunk_size=1 << 16, timeout=timeout)(url, str(partial), None)
            if (got := sha256_of(partial)) != sha256:
                raise OSError(f"{partial.stat().st_size:,} bytes came, but with SHA-256 {got}")
    except OSError as error:  # those of the library requests are some, too
        there = _sha256_if_there(destination)
        if there == sha256:  # another process was faster
            return destination
        raise DownloadError(
            f"expected from {url} a file with SHA-256 {sha256}; instead: {error}. To go on "
            f"offline, get that file elsewhere and put it at {destination}"
            f"{f', where there is now another, with SHA-256 {there}' if there else ''}."
        ) from error
    return destination


def cache_folder() -> Path:
    """Where downloads are kept: `NEXT_TOKEN_CACHE`, or `next-token` in the user's cache folder."""
    if chosen := os.environ.get("NEXT_TOKEN_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "next-token"


class DownloadError(OSError):
    """A file could not be fetched; the message says what to do without a network."""


def _sha256_if_there(path: Path) -> str | None:
    """The digest of a file in hexadecimal digits, or None where there is no file."""
    return sha256_of(path) if path.is_file() else None
