"""Where are the records and the texts that chapters read, wherever `src` is installed?

    a checkout    beside src: what experiments recorded in results, texts in book/tokens
    a wheel       in src/_book, to which they are copied when it is built (setup.py)

So a chapter runs as a notebook in any folder, and not only where it lies in the checkout.
"""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def place_of(name: str) -> Path:
    """The file or folder of the book that is called so: the one that belongs to this `src`.

    >>> place_of("results").name
    'results'

    Args:
        name: as it is called in a checkout, such as `results/gpt1`.

    Raises:
        FileNotFoundError: there is none, so what is installed is not the whole book.
    """
    places = [PACKAGE / "_book" / name, PACKAGE.parent / name]
    for place in places:
        if place.exists():
            return place
    raise FileNotFoundError(f"expected {name} of the book in or beside {PACKAGE}, found none")
