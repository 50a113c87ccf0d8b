"""A stranger finds any line from the tree alone: rules of rooms, names and lengths."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MODULES = sorted(p for p in (ROOT / "lakehouse").rglob("*.py") if p.name != "__init__.py")
DOMAIN = ROOT / "benchmarks" / "agent_catalog" / "domain"
"""The evaluation's domain, as its author wrote it."""
SAYS_NOTHING = {
    "added", "bulk", "changes", "common", "engine", "frames", "helper", "helpers", "kinds",
    "leaves", "misc", "operation", "passes", "produce", "removed", "replace", "requests", "steps",
    "utils", "values", "workspace",
}  # fmt: skip
MODULES_MAX, MODULE_LINES_MAX, FUNCTION_LINES_MAX = 15, 500, 70


def test_no_room_is_a_store():
    modules = Counter(path.parent for path in MODULES)
    assert {str(room): n for room, n in modules.items() if n > MODULES_MAX} == {}


def test_no_name_occurs_twice_and_every_name_says_something():
    names = Counter(path.stem for path in MODULES)
    assert [name for name, n in names.items() if n > 1] == []
    assert set(names) & SAYS_NOTHING == set()


def test_modules_are_of_a_length_to_read():
    lengths = {str(one.relative_to(ROOT)): len(one.read_text().splitlines()) for one in MODULES}
    assert {name: n for name, n in lengths.items() if n > MODULE_LINES_MAX} == {}


@pytest.mark.parametrize("room", ["lakehouse", "tests", "benchmarks", "deploy", "examples"])
def test_functions_are_of_a_length_to_read(room):
    long = {}
    for module in (ROOT / room).rglob("*.py"):
        if module.is_relative_to(DOMAIN):
            continue
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    long[f"{module.relative_to(ROOT)}: {node.name}"] = lines
    assert long == {}


def test_packages_only_export():
    top = ROOT / "lakehouse"
    for package in top.rglob("__init__.py"):
        if package.parent in (top, top / "spark", top / "orchestration"):
            continue  # these import what they export when it is used, see test_imports
        for node in ast.parse(package.read_text()).body:
            assert isinstance(node, (ast.Expr, ast.ImportFrom, ast.Import, ast.Assign)), package


def test_the_drawings_of_the_architecture_are_those_of_the_code():
    done = subprocess.run(
        [sys.executable, "docs/draw_architecture.py"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
