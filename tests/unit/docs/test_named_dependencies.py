"""What is imported is named in pyproject.toml: nothing comes along with another package alone."""

from __future__ import annotations

import ast
import functools
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDERS = ("lakehouse", "assets", "jobs", "sensors", "examples", "deploy", "benchmarks", "docs")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
NAME = re.compile(r"[A-Za-z0-9_.-]+")


def normalized(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", NAME.match(requirement)[0]).lower()


def named() -> set[str]:
    """Distributions of the project, its extras and its groups."""
    lists = [
        PROJECT["project"]["dependencies"],
        *PROJECT["project"]["optional-dependencies"].values(),
        *PROJECT["dependency-groups"].values(),
    ]
    return {normalized(one) for each in lists for one in each if isinstance(one, str)}


def imported(folder: str) -> dict[str, str]:
    """Top-level modules, each with a file that imports it."""
    found = {}
    for file in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [name.name for name in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [str(node.module)]
            found |= {name.partition(".")[0]: str(file.relative_to(ROOT)) for name in names}
    return found


installed = functools.cache(packages_distributions)


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_is_imported_is_named(folder):
    distributions, known = installed(), named()
    unnamed = {
        module: file
        for module, file in imported(folder).items()
        if module not in sys.stdlib_module_names
        and not (ROOT / module).is_dir()
        and not (ROOT / f"{module}.py").exists()
        and module in distributions
        and not known & {normalized(distribution) for distribution in distributions[module]}
    }
    assert unnamed == {}
