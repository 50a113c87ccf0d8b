"""The README's example runs and prints what it says; the installation page is up to date."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from lakehouse.spark.jvm.jre import NEWEST_JAVA

README = Path(__file__).resolve().parents[3] / "README.md"
ROOMS = ("lakehouse", "assets", "jobs", "sensors")


def test_the_first_example_runs(tmp_path):
    example = re.findall(r"```python\n(.+?)```", README.read_text(), flags=re.DOTALL)[0]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1 row from 1 file\n2 rows before the delete\n"


def test_the_readme_names_the_commands_of_the_makefile():
    makefile = (README.parent / "Makefile").read_text()
    commands = set(re.findall(r"make ([a-z]+)", README.read_text()))
    assert {"demo", "test", "dev"} <= commands
    assert all(re.search(rf"^{command}:", makefile, flags=re.MULTILINE) for command in commands)


def test_recipes_hold_for_the_make_of_macos():
    """GNU Make 3.81 runs each line in a shell of its own, and knows neither of these."""
    makefile = (README.parent / "Makefile").read_text()
    later = re.compile(r"^\.(?:ONESHELL|SHELLFLAGS)|!=|^\t@?(?:export|\w+=\S*$)", re.MULTILINE)
    assert not later.findall(makefile)


def test_the_installation_page_names_the_extras_and_versions_of_the_project():
    project = tomllib.loads((README.parent / "pyproject.toml").read_text())["project"]
    page = (README.parent / "docs/install.md").read_text()
    extras = set(re.findall(r"^\| `([a-z]+)` \| ", page, flags=re.MULTILINE))
    assert extras == project["optional-dependencies"].keys()
    assert project["requires-python"] in page
    assert f"pylakehouse-{project['version']}-py3" in page
    assert all(spark in page for spark in NEWEST_JAVA)


def test_the_deployment_page_names_every_variable_that_the_code_reads():
    root = README.parent
    pages = [*root.glob("*.py"), *(path for name in ROOMS for path in (root / name).rglob("*.py"))]
    read = {name for page in pages for name in re.findall(r"LAKEHOUSE_[A-Z_]+\b", page.read_text())}
    named = set(re.findall(r"`(LAKEHOUSE_[A-Z_]+)`", (root / "docs/deployment.md").read_text()))
    assert {name for name in read if not name.endswith("_")} == named
