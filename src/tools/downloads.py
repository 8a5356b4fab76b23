"""How does a file from the network come to this machine whole, once, and as it was published?

It is fetched beside its place, compared with the checksum that is known in advance, and then put
there; until then no file of that name exists. Where there is no network, the error says what to do.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import urllib.error
import urllib.request
from pathlib import Path

from .files import replacing


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
    destination = Path(destination)
    if _sha256_of(destination) == sha256:
        return destination
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with replacing(destination) as partial:
            _fetch(url, partial, timeout)
            if (got := _sha256_of(partial)) != sha256:
                raise OSError(f"{partial.stat().st_size:,} bytes came, but with SHA-256 {got}")
    except (OSError, http.client.HTTPException) as error:
        if _sha256_of(destination) == sha256:  # another process was faster
            return destination
        raise DownloadError(_explain(error, url, destination, sha256, timeout)) from error
    return destination


def cache_folder() -> Path:
    """Where downloads are kept: `NEXT_TOKEN_CACHE`, or `next-token` in the user's cache folder."""
    if chosen := os.environ.get("NEXT_TOKEN_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "next-token"


class DownloadError(OSError):
    """A file could not be fetched; the message says what to do without a network."""


def _response(url: str, timeout: float) -> http.client.HTTPResponse:
    """The opened answer of a server that agrees to send the file."""
    try:
        return urllib.request.urlopen(url, timeout=timeout)
    except urllib.error.HTTPError as error:
        with error:  # an HTTPError is an open answer too
            raise OSError(f"the server answered HTTP {error.code} {error.reason}") from error


def _fetch(url: str, path: Path, timeout: float) -> None:
    """Write what the address sends to a new file, with a progress bar on the error stream."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    # Plain text in a notebook too: rich's own notebook output asks for ipywidgets.
    console = Console(stderr=True, force_jupyter=False)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with (
        _response(url, timeout) as response,
        path.open("xb") as file,
        Progress(*columns, console=console) as progress,
    ):
        announced = response.length
        task = progress.add_task(url.rsplit("/", 1)[-1], total=announced)
        while chunk := response.read1(1 << 16):
            file.write(chunk)
            progress.update(task, advance=len(chunk))
        if announced is not None and file.tell() < announced:
            raise OSError(f"cut off: {file.tell():,} of the announced {announced:,} bytes came")


def _sha256_of(path: Path) -> str | None:
    """The digest of a file in hexadecimal digits, or None where there is no file."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _explain(error: Exception, url: str, destination: Path, sha256: str, timeout: float) -> str:
    """What was expected, what came, and how to go on without a network."""
    cause = getattr(error, "reason", error)  # urllib wraps what the socket said
    if isinstance(cause, TimeoutError):
        came = f"nothing came for {timeout:g} seconds (time-out)"
    else:
        came = str(cause) or type(cause).__name__
    there = _sha256_of(destination)
    return (
        f"expected from {url} a file with SHA-256 {sha256}; instead: {came}. To go on offline, "
        f"get that file elsewhere and put it at {destination}"
        f"{f', where there is now another, with SHA-256 {there}' if there else ''}."
    )
