"""`make check` finds what nothing uses, and its list of exceptions holds nothing in vain."""

import tomllib
from pathlib import Path

import pytest
from vulture import Vulture

ROOT = Path(__file__).parents[3]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["vulture"]


def unused(paths, ignored=()):
    found = Vulture(ignore_names=list(ignored))
    found.scavenge([str(path) for path in paths])
    return {item.name for item in found.get_unused_code()}


@pytest.fixture(scope="module")
def without_exceptions():
    return unused(ROOT / path for path in SETTINGS["paths"])


def test_every_exception_is_needed(without_exceptions):
    assert set(SETTINGS["ignore_names"]) - without_exceptions == set()


def test_an_unused_function_is_found(tmp_path):
    (tmp_path / "planted.py").write_text("def nobody_calls_this():\n    return 1\n")
    paths = [*(ROOT / path for path in SETTINGS["paths"]), tmp_path]
    assert unused(paths, SETTINGS["ignore_names"]) == {"nobody_calls_this"}
