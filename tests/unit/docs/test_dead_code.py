"""`make check` finds what nothing uses, and its list of exceptions holds nothing in vain."""

import tomllib
from pathlib import Path

import pytest
from vulture import Vulture

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["vulture"]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Names without a use, exceptions included, where one was planted beside the code."""
    planted = tmp_path_factory.mktemp("planted") / "planted.py"
    planted.write_text("def nobody_calls_this():\n    return 1\n")
    vulture = Vulture(ignore_decorators=SETTINGS["ignore_decorators"])
    vulture.scavenge([str(path) for path in (*(ROOT / one for one in SETTINGS["paths"]), planted)])
    return {item.name for item in vulture.get_unused_code()}


def test_every_exception_is_needed(found):
    assert set(SETTINGS["ignore_names"]) - found == set()


def test_an_unused_function_is_found(found):
    assert found - set(SETTINGS["ignore_names"]) == {"nobody_calls_this"}
