"""Frames of any library through the I/O manager: rows of a partition are those that were given.

The oracles are the rows that went in, and Python's zones for what a window of time is.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import dagster as dg
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa

import lakehouse as lh
from lakehouse.orchestration import LakehouseIOManager, LakehouseResource
from tests.hostile.foreign_mutants import Mutant

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
UP, DOWN = dg.AssetKey(["raw", "t"]), dg.AssetKey(["marts", "d"])
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}

_EXACT = {pa.int64(): pd.Int64Dtype(), pa.int32(): pd.Int32Dtype()}
GIVEN: Mapping[str, Callable[[pa.Table], Any]] = {
    "pyarrow": lambda rows: rows,
    "reader": lambda rows: rows.to_reader(),
    "polars": pl.from_arrow,
    "lazy": lambda rows: pl.from_arrow(rows).lazy(),
    "pandas": lambda rows: rows.to_pandas(types_mapper=_EXACT.get),
    "duckdb": lambda rows: duckdb.connect().from_arrow(rows),
}
ASKED: Mapping[str, tuple[Any, Callable[[Any], pa.Table]]] = {
    "pyarrow": (pa.Table, lambda rows: rows),
    "reader": (pa.RecordBatchReader, lambda rows: rows.read_all()),
    "polars": (pl.DataFrame, lambda rows: rows.to_arrow()),
    "lazy": (pl.LazyFrame, lambda rows: rows.collect().to_arrow()),
    "pandas": (pd.DataFrame, lambda rows: pa.Table.from_pandas(rows, preserve_index=False)),
    "duckdb": (duckdb.DuckDBPyRelation, lambda rows: rows.to_arrow_table()),
    "scan": (lh.TableScan, lambda rows: rows.to_arrow()),
}

Draw = Callable[[random.Random], Any]
TYPES: Mapping[pa.DataType, Draw] = {
    pa.int64(): lambda rng: rng.choice([0, -1, 2**60 + 1, -(2**63), rng.randrange(2**63)]),
    pa.int32(): lambda rng: rng.choice([0, 2**31 - 1, -(2**31)]),
    pa.float64(): lambda rng: rng.choice([0.1, -1e300, 5e-324, 2.0**53]),
    pa.float32(): lambda rng: rng.choice([0.5, -(2.0**100)]),
    pa.bool_(): lambda rng: rng.random() < 0.5,
    pa.string(): lambda rng: rng.choice(["", "a", "NaN", "Zürich", "1"]),
    pa.binary(): lambda rng: rng.choice([b"", b"\0\xff"]),
    pa.date32(): lambda rng: rng.choice([dt.date(1, 1, 1), dt.date(2026, 10, 25)]),
    pa.time64("us"): lambda rng: rng.choice([dt.time(), dt.time(23, 59, 59, 999_999)]),
    pa.decimal128(20, 3): lambda rng: rng.choice([Decimal("0.001"), Decimal("-99999999999.500")]),
    pa.timestamp("us"): lambda rng: dt.datetime(2026, 3, 29, rng.randrange(24), 30),  # noqa: DTZ001
    pa.timestamp("us", "UTC"): lambda rng: dt.datetime(1969, 12, 31, 23, tzinfo=dt.UTC),
    pa.list_(pa.int64()): lambda rng: [2**60 + 1, 7][: rng.randrange(3)],
    pa.struct([("x", pa.string())]): lambda rng: {"x": rng.choice(["a", ""])},
}
TIMES = [pa.timestamp(unit, zone) for unit in ("us", "ns") for zone in (None, "UTC")]
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Pacific/Auckland")


@dataclass
class Shape:
    """What an asset is partitioned by, and what its table looks like.

    Attributes:
        definition: of its partitions; None: it has none.
        column: the type of the column `at`, which tells the partition.
        columns: the others.
    """

    definition: dg.PartitionsDefinition | None
    column: pa.DataType | None
    columns: dict[str, pa.DataType]
    rows: dict[str | None, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def schema(self) -> pa.Schema:
        at = {} if self.column is None else {"at": self.column}
        return pa.schema({**at, **self.columns})

    def keys(self) -> Sequence[str | None]:
        return [None] if self.definition is None else self.definition.get_partition_keys()

    def window(self, key: str | None) -> dg.TimeWindow | None:
        """Of a partition by time."""
        if isinstance(self.definition, dg.TimeWindowPartitionsDefinition):
            return self.definition.time_window_for_partition_key(str(key))
        return None

    def shown_twice(self, key: str | None) -> bool:
        """Whether a wall clock shows the hour of a partition by hours a second time."""
        window = self.window(key)
        wall = self.column is not None and pa.types.is_timestamp(self.column)
        if window is None or not wall or self.column.tz is not None:
            return False
        zone = ZoneInfo(self.definition.timezone)
        start = window.start.astimezone(zone)
        both = {start.replace(fold=fold).utcoffset() for fold in (0, 1)}
        hours = (window.end.timestamp() - window.start.timestamp()) / 3600
        return len(both) == 2 and hours < 20

    def drawn(self, rng: random.Random, key: str | None) -> list[dict[str, Any]]:
        """Rows of a partition, also at its ends."""
        found = []
        for _ in range(rng.randrange(6)):
            row = {
                name: None if rng.random() < 0.3 else TYPES[kind](rng)
                for name, kind in self.columns.items()
            }
            found.append(row if self.column is None else {"at": self._at(rng, key), **row})
        return found

    def _at(self, rng: random.Random, key: str | None) -> Any:
        window = self.window(key)
        if window is None or pa.types.is_string(self.column):
            return key
        zone = ZoneInfo(self.definition.timezone)
        length = int(window.end.timestamp() - window.start.timestamp()) * 10**6
        after = rng.choice([0, 1, length - 1, length // 2, rng.randrange(length)])
        micros = int(window.start.timestamp()) * 10**6 + after
        if pa.types.is_date(self.column):
            return window.start.astimezone(zone).date()
        if self.column.tz is None:
            moment = EPOCH + dt.timedelta(microseconds=micros)
            wall = moment.astimezone(zone).replace(tzinfo=dt.UTC)
            micros = (wall - EPOCH) // dt.timedelta(microseconds=1)
        return micros if self.column.unit == "us" else micros * 1000 + rng.choice([0, 1, 999])

    def table(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        """The rows as Arrow; times of the partition are numbers in them."""
        plain = pa.schema(
            [one.with_type(pa.int64()) if _counted(one) else one for one in self.schema]
        )
        return pa.Table.from_pylist(list(rows), plain).cast(self.schema)


def _counted(one: pa.Field) -> bool:
    return one.name == "at" and pa.types.is_timestamp(one.type)


def shape_of(rng: random.Random) -> Shape:
    """A random one."""
    kinds = rng.sample(list(TYPES), rng.randint(1, 4), counts=[3, *[1] * (len(TYPES) - 1)])
    columns = dict(zip("abcd", kinds, strict=False))
    which = rng.choice(["none", "static", "daily", "daily", "hourly", "hourly"])
    if which == "none":
        return Shape(None, None, columns)
    if which == "static":
        keys = ["New York", "a=b&c", 'say "hi"']
        return Shape(dg.StaticPartitionsDefinition(keys), pa.string(), columns)
    if which == "daily":
        days = dg.DailyPartitionsDefinition(
            "2026-10-23", end_date="2026-10-28", timezone=rng.choice(ZONES)
        )
        return Shape(days, rng.choice([*TIMES, pa.date32(), pa.string()]), columns)
    hours = dg.HourlyPartitionsDefinition(
        "2026-10-24-23:00", end_date="2026-10-25-06:00", timezone=rng.choice(ZONES[:2])
    )
    return Shape(hours, rng.choice(TIMES), columns)


def plain(rows: pa.Table) -> list[str]:
    """Values that do not tell which library had them."""
    names = sorted(rows.column_names)
    columns = []
    for name in names:
        column = rows[name].combine_chunks()
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_timestamp(column.type):
            units = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}[column.type.unit]
            numbers = column.cast(pa.int64()).to_pylist()
            columns.append([None if one is None else one * units for one in numbers])
        else:
            columns.append([None if one != one else one for one in column.to_pylist()])
    return sorted(repr(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True))


class Assets:
    """An asset whose rows go into a table, one that reads them, and their runs."""

    def __init__(self, rng: random.Random, folder: Path, instance: dg.DagsterInstance) -> None:
        self.rng, self.instance = rng, instance
        self.shape = shape_of(rng)
        self.uri = rng.choice([str(folder / "lake"), (folder / "lake").as_uri()])
        self.lake = lh.load_catalog(self.uri)
        self.expr = "at"
        asked = [one for one in ASKED if one != "duckdb" or not self._is_finer()]
        self.annotation, self.as_arrow = ASKED[rng.choice([*asked, "pandas", "pandas"])]
        self.seen: list[pa.Table] = []

    def _is_finer(self) -> bool:
        """Whether its times are too fine for DuckDB, whose instants have microseconds."""
        kind = self.shape.column
        return kind is not None and pa.types.is_timestamp(kind) and kind.unit == "ns"

    def _metadata(self) -> dict[str, Any]:
        version = {"table_properties": {"format-version": "3"}} if self._is_finer() else {}
        return version if self.shape.column is None else {"partition_expr": self.expr, **version}

    def up(self, rows: pa.Table) -> dg.AssetsDefinition:
        """The asset that gives the rows as a frame of some library.

        DuckDB renames columns that differ by case; pandas has no types where there are no rows.
        """
        names = {name.casefold() for name in rows.column_names}
        left_out = {
            "duckdb": self._is_finer() or len(names) < rows.num_columns,
            "pandas": not rows.num_rows,
        }
        given = GIVEN[self.rng.choice([name for name in GIVEN if not left_out.get(name)])]

        @dg.asset(key=UP, partitions_def=self.shape.definition, metadata=self._metadata())
        def up():
            return given(rows)

        return up

    def down(self) -> dg.AssetsDefinition:
        def down(rows):
            self.seen.append(self.as_arrow(rows))

        down.__annotations__ = {"rows": self.annotation, "return": None}
        more = {} if self.shape.column is None else {"partition_expr": "at"}
        return dg.asset(
            key=DOWN,
            partitions_def=self.shape.definition,
            metadata=more,
            ins={"rows": dg.AssetIn(key=UP)},
        )(down)

    def run(self, assets: Sequence[Any], key: str | None) -> str:
        """A run of the assets; why it failed, if it did."""
        manager = LakehouseIOManager(lakehouse=LakehouseResource(catalog=self.uri))
        done = dg.materialize(
            assets,
            partition_key=key,
            selection=[one for one in (UP, DOWN) if one == DOWN or not _is_spec(assets[0])],
            resources={"io_manager": manager},
            instance=self.instance,
            run_config=QUIET,
            raise_on_error=False,
        )
        return " ".join(
            str(event.step_failure_data.error_display_string)
            for event in done.get_step_failure_events()
        )

    def write(self, key: str | None) -> None:
        """The rows of a partition, which another asset reads in the same run."""
        rows = self.shape.drawn(self.rng, key)
        why = self.run([self.up(self.shape.table(rows)), self.down()], key)
        if self.shape.shown_twice(key):
            if "show twice" not in why:
                raise AssertionError(f"the hour of {key} is shown twice, and: {why or 'taken'}")
            return
        if why:
            raise AssertionError(why)
        self.shape.rows[key] = rows
        self._same(self.seen.pop(), self.shape.table(rows), f"of {key}")

    def _same(self, found: pa.Table, right: pa.Table, what: str) -> None:
        # a column comes with its first value
        for name in set(right.column_names) - set(found.column_names):
            found = found.append_column(name, pa.nulls(found.num_rows))
        if plain(found) != plain(right):
            raise AssertionError(f"{what}: {plain(found)} instead of {plain(right)}")

    def _there(self) -> set[str]:
        """Columns of the table: one of nulls alone is none yet."""
        return {field.name for field in self.lake.load_table("raw.t").schema().fields}

    def evolve(self) -> None:
        """Change columns by hand; what is read has the present ones."""
        table = self.lake.load_table("raw.t")
        there = self._there()
        names = [name for name in self.shape.columns if name in there]
        gone, renamed = self.rng.choice([*names, None]), self.rng.choice(["at", *names])
        renamed = None if renamed == gone or renamed not in there else renamed
        if gone is not None and len(there) == 1:
            gone = None
        with table.update_schema() as update:
            if gone is not None:
                update.drop_column(gone)
            if renamed is not None:
                update.rename_column(renamed, "fresh")
        self.expr = "fresh" if renamed == "at" else "at"
        up = dg.AssetSpec(
            UP,
            partitions_def=self.shape.definition,
            metadata={**self._metadata(), "dagster/io_manager_key": "io_manager"},
        )
        for key, rows in self.shape.rows.items():
            why = self.run([up, self.down()], key)
            if why:
                raise AssertionError(f"after {gone} went and {renamed} was renamed: {why}")
            right = self.shape.table(rows)
            right = right if gone is None else right.drop_columns([gone])
            right = right.rename_columns(
                ["fresh" if name == renamed else name for name in right.column_names]
            )
            self._same(self.seen.pop(), right, f"of {key}, {gone} gone, {renamed} renamed")

    def twin(self) -> None:
        """Rows with a column whose name differs from another's by its case: Spark reads no such."""
        key = next(iter(self.shape.rows))
        rows = self.shape.table(self.shape.rows[key])
        there = self._there() & set(self.shape.columns)
        if not there:
            return
        name = self.rng.choice(sorted(there)).upper()
        why = self.run([self.up(rows.append_column(name, rows[name.lower()])), self.down()], key)
        if "Give one of them another name" not in why:
            raise AssertionError(f"column {name} beside {name.lower()}: {why or 'taken'}")

    def look(self) -> None:
        """All rows; and every location is a URI, however the catalog was named."""
        table = self.lake.load_table("raw.t")
        right = [row for rows in self.shape.rows.values() for row in rows]
        self._same(table.scan().to_arrow(), self.shape.table(right), "in the table")
        snapshots = table.snapshots()
        locations = [
            table.location,
            table.metadata_location,
            *(one.manifest_list for one in snapshots),
            *(one.manifest_path for snapshot in snapshots for one in _manifests(table, snapshot)),
            *(file.file_path for file in table.scan().plan().files),
        ]
        for one in locations:
            if urlsplit(one).scheme != "file":
                raise AssertionError(f"{one} is no URI")


def _manifests(table: Any, snapshot: Any) -> Sequence[Any]:
    from lakehouse.manifests.manifest_reader import load_manifests

    return load_manifests(table.storage, snapshot)


def _is_spec(asset: object) -> bool:
    return isinstance(asset, dg.AssetSpec)


def round_of(seed: int, folder: Path, *_: object) -> None:
    """A table of random columns, its partitions in turn. Raises AssertionError."""
    rng = random.Random(seed)
    with dg.DagsterInstance.ephemeral() as instance:
        assets = Assets(rng, folder, instance)
        for key in rng.choices(assets.shape.keys(), k=rng.randint(1, 3)):
            assets.write(key)
        if not assets.shape.rows:
            return
        assets.look()
        if rng.random() < 0.4:
            assets.twin()
        if rng.random() < 0.6:
            assets.evolve()


_FILTER = "orchestration.assets.partition_filter"
MUTANTS = [
    Mutant(
        "13: times of nanoseconds are compared with days",
        f"{_FILTER}:_dimension",
        "isinstance(kind, TIMES)",
        "isinstance(kind, TIMES) and not str(kind).endswith('_ns')",
    ),
    Mutant(
        "13: hours that clocks show twice are empty",
        f"{_FILTER}:_refuse_repeated_hours",
        "for window in windows:",
        "for window in ():",
    ),
    Mutant(
        "13: the head is read with the columns of its snapshot",
        "orchestration.assets.frames:InputRows.scan",
        "snapshot_id=self.snapshot_id,",
        "snapshot_id=self.snapshot_id or self.head_id(),",
    ),
    Mutant(
        "13: integers beside nulls are doubles in pandas",
        "orchestration.assets.frames:loader_for",
        "loader = None if kind is None else",
        "loader = (lambda scan: scan.to_arrow().to_pandas()) if kind and kind[0] == 'pandas' else",
        seed=18,
    ),
    Mutant(
        "13: a column is added beside one whose name differs by case",
        "orchestration.assets.asset_table:AssetTable.typed",
        "!= name:",
        "is None:",
        seed=7,
    ),
    Mutant(
        "13d: a warehouse that is given as a path writes locations without a scheme",
        "spec.identifier:full_uri",
        "return location if local is None else",
        "return location if local is None or location[0] == '/' else",
    ),
]
