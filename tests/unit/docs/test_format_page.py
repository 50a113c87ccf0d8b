"""The worked example of docs/format.md is what the code writes."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_the_worked_example_is_what_the_code_writes():
    script = runpy.run_path(str(DOCS / "worked_example.py"))
    page = (DOCS / "format.md").read_text()
    shown = page.partition(script["BEGIN"])[2].partition(script["END"])[0].strip()
    assert shown, "run docs/worked_example.py --write"
    if script["VERSIONS"] not in shown:
        pytest.skip(
            f"bytes depend on the versions of pyarrow and zlib; here is {script['VERSIONS']}"
        )
    assert shown == script["example"]().strip()
