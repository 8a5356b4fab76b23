"""What JupyterLab does with the book's pages: `_ext/lab.py`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "_ext"))

from lab import configure

configure(get_config())  # noqa: F821
