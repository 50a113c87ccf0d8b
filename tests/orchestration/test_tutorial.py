"""The tutorial runs as it stands, in an empty folder."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner as ClickRunner
from dagster_dg_cli.cli import cli as dg
from typer.testing import CliRunner

from lakehouse.cli import app

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"
BLOCKS = re.findall(r"^```(python|sh)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
PROJECT = ("definitions", "assets")


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The working directory; what the page imports there is forgotten afterwards."""
    held = {name: module for name, module in sys.modules.items() if name.split(".")[0] in PROJECT}
    for name in held:
        del sys.modules[name]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("COLUMNS", "200")
    yield tmp_path
    for name in [one for one in sys.modules if one.split(".")[0] in PROJECT]:
        del sys.modules[name]
    sys.modules.update(held)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_page_runs_in_an_empty_folder(
    spark, empty_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = []
    for language, text in BLOCKS:
        if language == "python":
            path = empty_folder / text.split("\n", 1)[0].removeprefix("# ")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            continue
        said += [(line, run(line, empty_folder, monkeypatch)) for line in text.splitlines()]
    told = dict(said)
    assert "malformed JSON" in next(t for c, t in said if "new-source" in c)
    assert re.search(r"2024-06-01\W+100\b", next(t for c, t in said if "AS DATE" in c))
    assert "301" in next(t for c, t in said if 'clicks_quarantine"' in c)
    paid = {user: sum(n / 4 for n in range(300) if n % 7 == user) for user in range(7)}
    most = max(paid, key=paid.__getitem__)
    assert re.search(rf"u{most} +\d+ +{paid[most]}", next(t for c, t in said if "LIMIT 3" in c))
    assert "raw.clicks at snapshot" in told["lakehouse lineage marts/spenders"]


def run(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A command of the page, in this process: it finds Spark running."""
    words = shlex.split(line.replace("$PWD", str(folder)))
    match words[0]:
        case "export":
            for setting in words[1:]:
                monkeypatch.setenv(*setting.split("=", 1))
            return ""
        case "mkdir":
            Path(os.path.expandvars(words[-1])).mkdir(parents=True)
            return ""
        case "python":
            runpy.run_path(words[1])
            return ""
        case "lakehouse":
            done = CliRunner().invoke(app, words[1:])
        case "dg":
            for name in [one for one in sys.modules if one.split(".")[0] in PROJECT]:
                del sys.modules[name]
            done = ClickRunner().invoke(dg, words[1:])
        case other:
            raise AssertionError(f"the page has a command that this test does not know: {other}")
    assert done.exit_code == 0, (line, done.output[-3000:], done.exception)
    return done.output
