"""The tree as a reader finds it: packages only export, and the drawings show the code."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


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
