"""docs/spec_audit.md: every test that it names is there, and every error is in the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ROWS = re.findall(
    r"^\| ([^|]+) \| ([^|]+) \| (\w[\w/]*) \| (.+) \|$",
    (ROOT / "docs/spec_audit.md").read_text(),
    re.MULTILINE,
)
CODE = "\n".join(path.read_text() for path in (ROOT / "lakehouse").rglob("*.py"))


@pytest.mark.parametrize(("lines", "what", "state", "shown"), ROWS)
def test_what_a_row_says_is_there(lines: str, what: str, state: str, shown: str) -> None:
    assert re.fullmatch(r"\d+(-\d+)?(, \d+(-\d+)?)*", lines)
    assert what
    if state == "done":
        path, _, function = shown.strip("`").partition("::")
        assert re.search(
            rf"^\s*def {function}\(", (ROOT / "tests" / path).read_text(), re.MULTILINE
        )
    elif state == "refused":
        assert shown.strip("`") in CODE
    else:
        assert state in ("differs", "n/a")
        assert shown.endswith(".")


def test_every_row_is_read() -> None:
    text = (ROOT / "docs/spec_audit.md").read_text()
    assert len(ROWS) == sum(line.startswith("| ") for line in text.splitlines()) - 4  # the heads
    assert len(ROWS) > 120
