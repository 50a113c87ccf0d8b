"""Asks Java for each row of the table of orders in docs/format.md.

For each type: how Java's comparator orders extreme values beside how we do; and which files Java
plans in a table of ours, we in one of Java's, and Java in its own, of files that hold several of
these values each. A file that holds a row that a filter keeps must be planned.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, LongType, NestedField, PrimitiveType, UUIDType

from tests.conformance.java.both_engines import BothEngines
from tests.conformance.java.golden import distinct
from tests.conformance.java.json_rows import Row, plain
from tests.conformance.java.judge import Judge
from tests.conformance.java.random_filters import BINARY, filter_of, rank
from tests.conformance.java.random_rows import primitives

DIFFERENT = (FloatType, DoubleType, UUIDType)
"""Types that Java orders otherwise: `-0.0` below `0.0`, uuids by signed halves."""

MISREAD = (UUIDType,)
"""Types of which Java does not plan what its own files hold."""


class OrderError(Exception):
    """The table in docs/format.md is not, or no longer, what Java does."""


def ask(judge: Judge, folder: Path) -> Iterator[str]:
    """A line for each type. Raises OrderError where the table of orders is wrong."""
    for number, kind in enumerate(primitives(3)):
        yield _ask(judge, folder / str(number), kind)


def _ask(judge: Judge, folder: Path, kind: PrimitiveType) -> str:
    values = distinct(kind, 6, str(kind))
    theirs = judge("order", type=str(kind), values=values)
    ranks = [rank(plain(value, kind)) for value in values]
    ours = [sorted(ranks).index(one) for one in ranks]
    if (ours != theirs) != isinstance(kind, DIFFERENT):
        raise OrderError(f"{kind}: Java orders {values} as {theirs}, we as {ours}")
    ours_table = _table(judge, folder / "ours", kind, values, by_java=False)
    javas_table = _table(judge, folder / "java", kind, values, by_java=True)
    lost = {
        "Java in ours": _lost(ours_table, kind, values, read_by_java=True),
        "Java in its own": _lost(javas_table, kind, values, read_by_java=True),
        "we in Java's": _lost(javas_table, kind, values, read_by_java=False),
    }
    expected = {"Java in its own"} if isinstance(kind, MISREAD) else set()
    if {who for who, filters in lost.items() if filters} != expected:
        raise OrderError(f"{kind}: plans leave out files with rows that filters keep: {lost}")
    order = "the same order" if ours == theirs else "another order"
    found = ", ".join(f"{who} {len(filters)}" for who, filters in lost.items())
    return f"{kind}: {order}; of {len(BINARY) * len(values)} filters lose rows: {found}"


def _schema(kind: PrimitiveType) -> Schema:
    return Schema(NestedField(1, "rid", LongType(), required=True), NestedField(2, "c", kind))


def _rows(values: list[Any]) -> list[Row]:
    return [{"1": number, "2": one} for number, one in enumerate([*values, None])]


def _table(
    judge: Judge, folder: Path, kind: PrimitiveType, values: list[Any], *, by_java: bool
) -> BothEngines:
    """A table with three rows a file."""
    folder.mkdir(parents=True)
    both = BothEngines(judge, folder, "jdbc")
    properties = {"format-version": "3", "write.metadata.metrics.default": "full"}
    both.create(_schema(kind), [("truncate[3]", "rid")], properties, by_java=by_java)
    if by_java:
        both.java("append", rows=_rows(values))
    else:
        both.append(_rows(values))
    return both


def _lost(
    both: BothEngines, kind: PrimitiveType, values: list[Any], *, read_by_java: bool
) -> list[str]:
    """The filters by which a plan leaves out a file with a row that they keep."""
    table = both.table()
    lost = []
    for value in [value for value in values if value != "nan"]:
        for op in BINARY:
            chosen = filter_of(op, "c", 2, kind, [value], _schema(kind))
            if read_by_java:
                files = both.java("plan", filter=chosen.java)
            else:
                files = [file.file_path for file in table.scan(where=chosen.ours).plan().files]
            planned = {int(path.rpartition("p0=")[2].partition("/")[0]) for path in files}
            means = chosen.means_to_java if read_by_java else chosen.means
            if any(means(row) and row["1"] // 3 * 3 not in planned for row in _rows(values)):
                lost.append(f"{op} {value}")
    return lost
