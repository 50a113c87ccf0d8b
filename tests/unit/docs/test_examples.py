"""Every public name has an example in its docstring, and every example runs, inner ones too.

An example knows `lake`, a catalog in a folder of its own, `events`, its table `raw.events` of three
rows, `more`, a row to append, `folder`, an empty folder that the catalog may read, `spark` where it
is needed, and the names that a script would import: `lh`, `pa`, `dt`, `Path`.
"""

from __future__ import annotations

import datetime as dt
import doctest
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import lakehouse as lh

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
WITH_METHODS = ("Changelog", "Lakehouse", "Table", "TableScan", "View")
SCHEMA = pa.schema(
    {"event_ts": pa.timestamp("us", tz="UTC"), "user_id": pa.int64(), "amount": pa.float64()}
)


def public_names() -> Iterator[tuple[str, object]]:
    """What `lakehouse` exports, and the methods and properties of what users hold."""
    for name in lh.__all__:
        yield name, getattr(lh, name)
    for owner in WITH_METHODS:
        for name, found in inspect.getmembers(getattr(lh, owner)):
            if not name.startswith("_") and (callable(found) or isinstance(found, property)):
                yield f"{owner}.{name}", found


NAMES = dict(public_names())


def inner_examples() -> Iterator[doctest.DocTest]:
    """Examples in docstrings of what is not public; they know the names of their modules, too."""
    public = {inspect.getdoc(name) for name in NAMES.values()}
    root = Path(lh.__file__).parent
    for path in sorted(root.rglob("*.py")):
        if ">>> " in path.read_text(encoding="utf-8"):
            parts = path.relative_to(root.parent).with_suffix("").parts
            module = importlib.import_module(".".join(parts).removesuffix(".__init__"))
            for one in doctest.DocTestFinder(exclude_empty=True).find(module):
                if one.examples and inspect.cleandoc(one.docstring) not in public:
                    yield one


INNER = {example.name: example for example in inner_examples()}


def rows(*told: tuple[int, int, int, float]) -> pa.Table:
    values = [
        {
            "event_ts": dt.datetime(2026, 6, day, hour, tzinfo=dt.UTC),
            "user_id": user,
            "amount": amount,
        }
        for day, hour, user, amount in told
    ]
    return pa.Table.from_pylist(values, schema=SCHEMA)


@pytest.fixture
def namespace(tmp_path):
    (tmp_path / "folder").mkdir()
    folder = str(tmp_path / "folder")
    lake = lh.load_catalog(str(tmp_path / "lake"), **{"allowed-locations": folder})
    events = lake.create_table("raw.events", SCHEMA, partition_by=["day(event_ts)"])
    events.append(rows((1, 10, 1, 10.0), (1, 11, 2, 20.0), (2, 9, 1, 30.0)))
    return {
        "lh": lh, "pa": pa, "dt": dt, "Path": Path, "lake": lake, "events": events,
        "more": rows((3, 8, 3, 40.0)), "folder": folder,
    }  # fmt: skip


def run(name: str, docstring: str, namespace: dict[str, object]) -> tuple[int, str]:
    """How many examples there are, and what went wrong with them."""
    test = doctest.DocTestParser().get_doctest(docstring, dict(namespace), name, None, 0)
    return len(test.examples), failures_of(test)


def failures_of(test: doctest.DocTest) -> str:
    said: list[str] = []
    doctest.DocTestRunner(optionflags=FLAGS).run(test, out=said.append)
    return "".join(said)


def needs_spark(name):
    return "(spark" in (inspect.getdoc(NAMES[name]) or "")


@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=[pytest.mark.spark] if needs_spark(one) else []) for one in NAMES],
)
def test_the_example_runs(name, namespace, request):
    docstring = inspect.getdoc(NAMES[name]) or ""
    if needs_spark(name):
        namespace["spark"] = request.getfixturevalue("spark")
    examples, failures = run(name, docstring, namespace)
    assert examples > 0, f"{name} has no example in its docstring"
    assert not failures, failures


@pytest.mark.parametrize("name", INNER)
def test_the_example_within_runs(name, namespace, monkeypatch):
    monkeypatch.chdir(namespace["folder"])
    test = INNER[name]
    test.globs = namespace | test.globs
    assert not failures_of(test)


def test_the_names_are_those_that_users_see():
    assert len(NAMES) > len(lh.__all__) + 60
    assert {"Table.append", "TableScan.count", "Lakehouse.load_table", "load_catalog"} <= set(NAMES)
    assert len(INNER) > 20


@pytest.mark.parametrize(
    ("docstring", "examples", "fails"),
    [
        ("No example.", 0, False),
        (">>> events.scan().count()\n3", 1, False),
        (">>> events.scan().count()\n4", 1, True),
        (">>> events.nothing()\n", 1, True),
        (">>> lake.load_table('x.y')\nTraceback (most recent call last):\nValueError: x", 1, True),
    ],
)
def test_the_check_can_fail(namespace, docstring, examples, fails):
    found, failures = run("x", docstring, namespace)
    assert (found, bool(failures)) == (examples, fails)
