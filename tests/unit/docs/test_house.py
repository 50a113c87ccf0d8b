"""The tree as a reader finds it: packages only export, and the pages show the code."""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pyarrow as pa

import lakehouse as lh

ROOT = Path(__file__).resolve().parents[3]


def test_packages_only_export():
    top = ROOT / "lakehouse"
    for package in top.rglob("__init__.py"):
        if package.parent in (top, *map(top.joinpath, ("spark", "orchestration", "maintenance"))):
            continue  # these import what they export when it is used, see test_imports
        for node in ast.parse(package.read_text()).body:
            assert isinstance(node, (ast.Expr, ast.ImportFrom, ast.Import, ast.Assign)), package


def test_public_methods_say_what_they_do_unless_what_they_override_says_it():
    classes: dict[str, list[ast.ClassDef]] = {}
    for path in (ROOT / "lakehouse").rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(node)

    def is_said(name: str, method: str) -> bool:
        """A class of others may say anything."""
        if name not in classes:
            return True
        return any(
            methods(known).get(method) or any(is_said(base, method) for base in bases(known))
            for known in classes[name]
        )

    def methods(known: ast.ClassDef) -> dict[str, str]:
        functions = (node for node in known.body if isinstance(node, ast.FunctionDef))
        said: dict[str, str] = {}
        for function in functions:  # the setter of a property says nothing
            said[function.name] = said.get(function.name) or ast.get_docstring(function) or ""
        return said

    def bases(known: ast.ClassDef) -> list[str]:
        if known.name == "CatalogDecorator":  # stands for any class of the protocol
            return ["Catalog"]
        names = [base.value if isinstance(base, ast.Subscript) else base for base in known.bases]
        return [ast.unparse(name).rpartition(".")[2] for name in names]

    silent = [
        f"{name}.{method}"
        for name, same_name in classes.items()
        for known in same_name
        for method, said in methods(known).items()
        if not (said or name.startswith("_") or method.startswith("_"))
        and not any(is_said(base, method) for base in bases(known))
    ]
    assert silent == []


def test_the_rooms_of_the_architecture_are_those_of_the_code():
    done = subprocess.run(
        [sys.executable, "docs/draw_architecture.py"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _code_of(module: str, name: str) -> CodeType:
    """The code of a function that a page names, such as a property of a class."""
    value: Any = importlib.import_module(f"lakehouse.{module.replace('/', '.')}")
    for part in name.split("."):
        value = inspect.getattr_static(value, part)
    value = getattr(value, "__func__", getattr(value, "fget", getattr(value, "func", value)))
    return inspect.unwrap(value).__code__


def _entered(call: Callable[[], object]) -> list[CodeType]:
    """The functions that a call enters, in the order in which it enters each first."""
    entered: dict[CodeType, None] = {}

    def watch(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            entered.setdefault(frame.f_code)

    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return list(entered)


def test_the_journeys_of_the_architecture_are_taken(tmp_path):
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    section = page.partition("## Three journeys")[2].partition("\n## ")[0]
    tables = [
        [
            (module, name)
            for line in part.splitlines()
            for module, *names in [re.findall("`([^`]+)`", "".join(line.split("|")[:3]))]
            for name in names
        ]
        for part in re.findall(r"\|---\|---\|---\|\n((?:\|.*\n)+)", section)
    ]
    assert all(tables)
    append, in_folder, in_database, plan, merge = tables
    rows = pa.table({"day": pa.array([1, 2, 2], pa.date32()), "user_id": [7, 7, 8]})
    lakes = [
        lh.load_catalog(tmp_path / "files"),
        lh.load_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/sql"),
    ]
    events = [lake.create_table("raw.e", rows.schema, partition_by=["day"]) for lake in lakes]
    for table in events:
        table.append(rows)
    where = "day = DATE '1970-01-03'"
    for named, call in (
        (append + in_folder, lambda: events[0].append(rows)),
        (append + in_database, lambda: events[1].append(rows)),
        (plan, lambda: events[0].scan(where=where).plan().files[0]),
        (merge, lambda: events[1].upsert(rows.slice(0, 1), keys=["day", "user_id"])),
    ):
        order = _entered(call)
        places = [(order.index(_code_of(*function)), function) for function in named]
        for before, after in itertools.pairwise(places):
            assert before <= after, f"{after[1]} comes before {before[1]}"
