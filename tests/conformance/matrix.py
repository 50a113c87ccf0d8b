"""The matrix of tables that every engine should open.

Format version x spec x evolved schema x evolved spec x deletes or none.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse as lh
from lakehouse.data.writing.delete_writer import FileDeletes, write_deletes

UTC = dt.UTC
TS = pa.field("ts", pa.timestamp("us", tz="UTC"))
OLD = pa.schema(
    [
        pa.field("id", pa.int32()),
        pa.field("note", pa.string()),
        pa.field("region", pa.string()),
        TS,
        pa.field("amount", pa.float32()),
        pa.field("place", pa.struct([pa.field("city", pa.string()), pa.field("zip", pa.int32())])),
    ]
)


_PLACE = pa.struct(
    [pa.field("town", pa.string()), pa.field("zip", pa.int64()), pa.field("country", pa.string())]
)
_KEPT = [
    pa.field("region", pa.string()),
    TS,
    pa.field("price", pa.float64()),
    pa.field("place", _PLACE),
]
SCHEMAS = {
    "same": OLD,
    "grown": pa.schema(
        [
            pa.field("id", pa.int64()),
            pa.field("note", pa.string()),
            *_KEPT,
            pa.field("size", pa.int32()),
        ]
    ),
    "dropped": pa.schema([pa.field("id", pa.int64()), *_KEPT, pa.field("note", pa.int32())]),
}
SPECS = {
    "unpartitioned": (),
    "day": ("day(ts)",),
    "region": ("region",),
}
REGIONS = ("eu", "us", None, "a b/c=%")
FIRST, SECOND = range(8), range(8, 16)
DELETED = frozenset({1, 6, 11})


@dataclass(frozen=True)
class Cell:
    """One kind of table."""

    version: int
    spec: str
    schema: str
    new_spec: bool
    deletes: bool

    def __str__(self) -> str:
        parts = (
            f"v{self.version}",
            self.spec,
            self.schema,
            "respecified" * self.new_spec,
            "deletes" * self.deletes,
        )
        return "-".join(part for part in parts if part)

    @property
    def arrow(self) -> pa.Schema:
        """The current schema."""
        return SCHEMAS[self.schema]

    @property
    def evolved(self) -> bool:
        """Whether the schema changed after the first append."""
        return self.schema != "same"


CELLS = tuple(
    Cell(*chosen)
    for chosen in itertools.product((2, 3), SPECS, SCHEMAS, (False, True), (False, True))
)


def in_cells(cells: Sequence[Cell] = CELLS) -> pytest.MarkDecorator:
    """A test of each cell: slow, but for a few where each pair of two dimensions' values is."""
    pairs = {
        cell: set(itertools.combinations(dataclasses.asdict(cell).items(), 2)) for cell in cells
    }
    missing, few = set().union(*pairs.values()), set()
    while missing:
        few.add(best := max(cells, key=lambda cell: len(pairs[cell] & missing)))
        missing -= pairs[best]
    marks = {cell: () if cell in few else pytest.mark.slow for cell in cells}
    return pytest.mark.parametrize(
        "cell", [pytest.param(cell, id=str(cell), marks=marks[cell]) for cell in cells]
    )


def old_row(number: int) -> dict[str, Any]:
    """Row of the first schema: with nulls, dates before 1970, infinities, text beyond ASCII."""
    ts = dt.datetime(1969, 12, 30, tzinfo=UTC) + dt.timedelta(
        hours=11 * number, microseconds=number
    )
    return {
        "id": number - 3,
        "note": None if number % 3 == 0 else f"n{number}",
        "region": REGIONS[number % 4],
        "ts": None if number == 5 else ts,
        "amount": number / 4,
        "place": None if number % 5 == 0 else {"city": f"Zürich {number}", "zip": 8000 + number},
    }


def new_row(number: int, cell: Cell) -> dict[str, Any]:
    """Row of the current schema, with values that the first one could not hold."""
    old = old_row(number)
    if not cell.evolved:
        return old
    place = old["place"] and {"town": old["place"]["city"], "zip": 2**40 + number, "country": "CH"}
    row = {**as_new(old, cell), "id": 2**40 + number, "price": number / 3, "place": place}
    return {**row, ("note" if cell.schema == "dropped" else "size"): number}


def as_new(old: Mapping[str, Any], cell: Cell) -> dict[str, Any]:
    """What a row of the first schema reads as in the current one."""
    if not cell.evolved:
        return dict(old)
    place = old["place"] and {
        "town": old["place"]["city"],
        "zip": old["place"]["zip"],
        "country": None,
    }
    row = {
        **{key: old[key] for key in ("id", "region", "ts")},
        "price": old["amount"],
        "place": place,
    }
    return (
        {**row, "note": None}
        if cell.schema == "dropped"
        else {**row, "note": old["note"], "size": None}
    )


def first_rows() -> list[dict[str, Any]]:
    """What the first snapshot of every cell holds, in its own schema."""
    return [old_row(number) for number in FIRST]


def rows_of(cell: Cell) -> list[dict[str, Any]]:
    """What the current snapshot of a cell holds."""
    gone = DELETED if cell.deletes else frozenset()
    first = [as_new(old_row(number), cell) for number in FIRST if number not in gone]
    return [*first, *(new_row(number, cell) for number in SECOND if number not in gone)]


def second_batch(cell: Cell) -> pa.Table:
    """The rows of the second append."""
    return pa.Table.from_pylist([new_row(number, cell) for number in SECOND], schema=cell.arrow)


def deleted_ids(cell: Cell) -> list[int]:
    """`id` of the rows deleted."""
    return [(old_row(n) if n in FIRST else new_row(n, cell))["id"] for n in sorted(DELETED)]


def build(catalog: lh.Lakehouse, cell: Cell) -> lh.Table:
    """The table of a cell, written by us."""
    table = catalog.create_table(
        f"m.{cell}", OLD, partition_by=SPECS[cell.spec], format_version=cell.version
    )
    table.append(pa.Table.from_pylist(first_rows(), schema=OLD))
    if cell.evolved:
        evolve_schema(table, cell)
    if cell.new_spec:
        evolve_spec(table, cell.spec)
    table.append(second_batch(cell))
    if cell.deletes:
        delete_by_position(table, deleted_ids(cell))
    return table


def evolve_schema(table: lh.Table, cell: Cell) -> None:
    """Rename, widen and add fields, also in a struct; or replace a middle column by a namesake."""
    with table.update_schema() as schema:
        schema.rename_column("amount", "price")
        schema.rename_column("place.city", "town")
        schema.add_column("place.country", "string")
        for column, wider in (("id", "long"), ("price", "double"), ("place.zip", "long")):
            schema.update_column(column, wider)
        if cell.schema == "grown":
            schema.add_column("size", "int")
        else:
            schema.drop_column("note")
    if cell.schema == "dropped":
        with table.update_schema() as schema:
            schema.add_column("note", "int")


def evolve_spec(table: lh.Table, spec: str) -> None:
    """Another spec for what comes."""
    with table.update_partition_spec() as change:
        if spec == "unpartitioned":
            change.add("region")
        elif spec == "day":
            change.replace("day(ts)", "month(ts)")
        else:
            change.add("bucket(4, id)")


def delete_by_position(table: lh.Table, ids: Sequence[int]) -> None:
    """Merge on read over all specs: position deletes in v2, deletion vectors in v3."""
    found = list(_positions(table, set(ids)))
    written = []
    for number, spec in table.metadata.specs().items():
        mine = [one for one in found if one.data_file.spec_id == number]
        written += write_deletes(
            mine,
            dataclasses.replace(table.write_request(), spec=spec),
            table.storage,
            task=str(number),
        )
    table.transaction().row_delta(delete_files=written).commit()
    table.refresh()


def _positions(table: lh.Table, ids: set[int]) -> Iterator[FileDeletes]:
    for file in table.scan().plan().files:
        filesystem, path = table.storage.filesystem(file.file_path)
        column = pq.read_table(path, filesystem=filesystem, columns=["id"])["id"].to_pylist()
        positions = [position for position, value in enumerate(column) if value in ids]
        if positions:
            yield FileDeletes(file, np.array(positions))


def same_rows(got: Iterable[Mapping[str, Any]], expected: Iterable[Mapping[str, Any]]) -> bool:
    """Equal as multisets; instants compare as instants, whatever zone they are shown in."""
    return sorted(map(_comparable, got)) == sorted(map(_comparable, expected))


def _comparable(value: Any) -> str:
    if isinstance(value, dt.datetime):
        return f"{value.astimezone(UTC) if value.tzinfo else value}"
    if isinstance(value, Mapping):
        return repr([(key, _comparable(value[key])) for key in sorted(value)])
    return repr(value)
