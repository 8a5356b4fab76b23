"""Each experiment runs in small, in less than two minutes of one core. Run by `make quick`."""

import json
import subprocess
import sys

import pytest
from chapters import ROOT

from experiments.__main__ import NAMES

LIMIT = 120  # seconds of a processor

pytestmark = pytest.mark.experiments


@pytest.mark.parametrize("name", NAMES)
def test_it_runs_in_small(name, tmp_path):
    command = [sys.executable, "-m", "experiments", name, "--quick"]
    options = ["--to", str(tmp_path / "to"), "--cache", str(tmp_path / "cache")]
    subprocess.run([*command, *options], cwd=ROOT, check=True)
    found = json.loads((tmp_path / "to" / name / "result.json").read_text(encoding="utf-8"))
    assert found["provenance"]["command"] == f"python -m experiments {name} --quick"
    assert 60 * found["core_minutes"] < LIMIT
    page = (tmp_path / "to" / name / "table.md").read_text(encoding="utf-8")
    assert page.startswith("# ")
    assert found["machine"] in page
