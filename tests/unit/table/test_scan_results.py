"""Counts, limits and streams of scans, against rows written and deleted."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import random
import threading
from collections import Counter
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse as lh
from lakehouse.spec.manifests.data_file import CONTENT_EQUALITY_DELETES, DataFile
from lakehouse.storage.location import local_path
from tests.waiting import eventually

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("part", pa.string()),
        pa.field("price", pa.float64()),
    ]
)
FILTERS = {
    None: lambda _: True,
    "part = 'p1'": lambda row: row["part"] == "p1",
    "part <> 'p1'": lambda row: row["part"] not in (None, "p1"),
    "id >= 40": lambda row: row["id"] is not None and row["id"] >= 40,
    "id >= 0": lambda row: row["id"] is not None,
    "id is null or price > 3": lambda row: row["id"] is None or (row["price"] or 0) > 3,
    "price is not null": lambda row: row["price"] is not None,
    "id between 10 and 55 and part = 'p0'": lambda row: (
        10 <= (row["id"] or 0) <= 55 and row["part"] == "p0"
    ),
    "abs(price) < 4": lambda row: row["price"] is not None and abs(row["price"]) < 4,
    "id > 1000": lambda _: False,
}
KINDS = ["plain", "copy-on-write", "position deletes", "vectors", "equality deletes"]


def made(ids: range, seed: int = 0) -> list[dict[str, object]]:
    chance = random.Random(seed)
    return [
        {
            "id": None if chance.random() < 0.1 else one,
            "part": chance.choice(["p0", "p1", "p2"]),
            "price": None if chance.random() < 0.1 else float(one % 9),
        }
        for one in ids
    ]


def arrow(rows: list[dict[str, object]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def equality_delete(table: lh.Table, ids: list[int]) -> DataFile:
    """By hand, of all partitions: our writer makes none."""
    field = pa.field("id", pa.int64(), metadata={b"PARQUET:field_id": b"1"})
    path = f"{table.location}/data/equal.parquet"
    pq.write_table(pa.table([ids], schema=pa.schema([field])), local_path(path))
    return DataFile(
        content=CONTENT_EQUALITY_DELETES,
        file_path=path,
        partition=(),
        spec_id=table.spec().spec_id,
        record_count=len(ids),
        file_size_in_bytes=Path(local_path(path)).stat().st_size,
        equality_ids=(1,),
    )


def filled(
    lake: lh.Lakehouse, kind: str, *, partitioned: bool
) -> tuple[lh.Table, list[dict[str, object]]]:
    """A table of some files with deletes of a kind, and the rows that it has."""
    table = lake.create_table(
        "a.b",
        SCHEMA,
        partition_by=["part"] if partitioned else [],
        format_version=3 if kind == "vectors" else 2,
        properties={
            "write.delete.mode": "copy-on-write" if kind == "copy-on-write" else "merge-on-read"
        },
    )
    rows: list[dict[str, object]] = []
    for start in range(0, 80, 20):
        new = made(range(start, start + 20), start)
        table.append(arrow(new))
        rows += new
    if kind == "equality deletes":
        gone = [3, 21, 22, 45, 79]
        table.transaction().row_delta((), [equality_delete(table, gone)]).commit()
        rows = [row for row in rows if row["id"] not in gone]
    elif kind != "plain":
        for where, goes in (
            ("id in (3, 21, 22, 45)", lambda row: row["id"] in (3, 21, 22, 45)),
            ("price = 7", lambda row: row["price"] == 7),
        ):
            table.delete(where)
            rows = [row for row in rows if not goes(row)]
    return table.refresh(), rows


def counted(rows: object) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row.values()) for row in rows)


@pytest.fixture
def lake(tmp_path):
    return lh.load_catalog(str(tmp_path))


# an equality delete of one partition would be that partition's alone
@pytest.mark.parametrize(
    ("kind", "partitioned"),
    [(kind, False) for kind in KINDS] + [(kind, True) for kind in KINDS[:-1]],
)
def test_counts_and_limits_are_those_of_the_rows(lake, kind, partitioned):
    table, rows = filled(lake, kind, partitioned=partitioned)
    for where, matches in FILTERS.items():
        expected = counted(row for row in rows if matches(row))
        size = expected.total()
        assert table.scan(where=where).count() == size, where
        assert counted(table.scan(where=where).to_arrow().to_pylist()) == expected, where
        for limit in (0, 7, size, size + 1):
            scan = table.scan(where=where, limit=limit)
            found = counted(scan.to_arrow().to_pylist())
            assert found.total() == min(limit, size) == scan.count(), (where, limit)
            assert found <= expected, (where, limit)


def test_a_limit_with_columns_that_are_left_out(lake):
    table, rows = filled(lake, "vectors", partitioned=True)
    scan = table.scan(where="id < 50", select=["price", "_pos"], limit=5)
    assert scan.to_arrow().column_names == ["price", "_pos"]
    assert scan.to_arrow().num_rows == 5
    assert table.scan(select=[], limit=5).to_arrow().shape == (5, 0)
    assert table.scan(select=[]).count() == len(rows)


def test_refs_and_times_are_counted_as_they_were(lake):
    table = lake.create_table("a.b", SCHEMA)
    assert (table.scan().count(), table.scan(limit=3).count()) == (0, 0)
    assert table.scan(limit=3).to_arrow().schema.names == SCHEMA.names
    first = table.append(arrow(made(range(10))))
    table.create_tag("first").create_branch("audit")
    table.append(arrow(made(range(10, 30))), branch="audit")
    table.append(arrow(made(range(30, 60))))
    told = [
        (table.scan(limit=25), 25, 40),
        (table.scan(ref="first", limit=25), 10, 10),
        (table.scan(ref="audit", limit=25), 25, 30),
        (table.scan(snapshot_id=first.snapshot_id, limit=4), 4, 10),
        (table.scan(as_of=first.timestamp_ms, limit=25), 10, 10),
        (table.scan_appends(first.snapshot_id, limit=25), 25, 30),
    ]
    for scan, limited, _ in told:
        assert scan.count() == limited == scan.to_arrow().num_rows, scan
    assert table.scan_appends(first.snapshot_id, ref="audit").count() == 20


@pytest.mark.parametrize("wrong", [-1, True, 1.5, "10"])
def test_a_limit_is_a_number_of_rows(lake, wrong):
    table = lake.create_table("a.b", SCHEMA)
    with pytest.raises(lh.InvalidInputError, match=r"a\.b.*limit"):
        table.scan(limit=wrong)


def test_metadata_answers_where_it_is_exact(lake):
    table, rows = filled(lake, "vectors", partitioned=True)
    for file in table.scan().plan().files:
        Path(local_path(file.file_path)).unlink()
    assert table.scan().count() == len(rows)
    assert table.scan(where="part = 'p1'").count() == sum(row["part"] == "p1" for row in rows)
    assert table.scan(where="part >= 'p'").count() == len(rows), "by bounds"
    with pytest.raises(lh.LakehouseError):
        table.scan(where="price < 5").count()


class Watched:
    """A storage that remembers which data files it was asked for."""

    def __init__(self, storage: object) -> None:
        self._storage = storage
        self.asked: set[str] = set()

    def __getattr__(self, name: str) -> object:
        found = getattr(self._storage, name)

        def call(location: str, *args: object) -> object:
            if location.endswith(".parquet"):
                self.asked.add(location)
            return found(location, *args)

        return call if name in ("filesystem", "read", "read_range", "size") else found


def test_a_limit_opens_no_file_behind_the_rows(lake):
    table = lake.create_table("a.b", SCHEMA)
    for start in range(0, 400, 10):
        table.append(arrow(made(range(start, start + 10))))
    files = [Path(local_path(file.file_path)) for file in table.scan().plan().files]
    for one in files[2:]:
        one.rename(one.with_suffix(".away"))
    watched = Watched(table.storage)
    limited = dataclasses.replace(table.scan(limit=15), storage=watched)
    assert limited.to_arrow().num_rows == 15
    assert watched.asked == {f"file://{file}" for file in files[:2]}
    with pytest.raises(lh.LakehouseError):
        table.scan(limit=21).to_arrow()
    for one in files[2:30]:
        one.with_suffix(".away").rename(one)
    # a filter that bounds prove nothing of: a few files are opened ahead, not all of them
    assert table.scan(where="abs(price) >= 0", limit=1).to_arrow().num_rows == 1


def read_by(library: str, scan: lh.TableScan) -> pa.Table:
    if library == "pyarrow":
        return pa.table(scan)
    if library == "polars":
        return pl.DataFrame(scan).to_arrow()
    if library == "polars from_arrow":
        return pl.from_arrow(scan).to_arrow()
    if library == "pandas":
        return pa.Table.from_pandas(scan.to_pandas())
    return duckdb.sql("select * from scan").to_arrow_table()


LIBRARIES = ["pyarrow", "polars", "polars from_arrow", "pandas", "duckdb"]


@pytest.mark.filterwarnings("ignore:from_arrow.* will return a Series:FutureWarning")
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("limit", [None, 11])
def test_libraries_take_a_scan_as_it_is(lake, library, limit):
    table, _ = filled(lake, "vectors", partitioned=False)
    scan = table.scan(where="price > 1", select=["price", "id", "part"], limit=limit)
    assert read_by(library, scan).cast(scan.to_arrow().schema).equals(scan.to_arrow())


def test_many_types_arrive_as_they_are(lake):
    rows = pa.table(
        {
            "flag": pa.array([True, None]),
            "day": pa.array([1, None], pa.date32()),
            "at": pa.array([1, None], pa.timestamp("us", "UTC")),
            "clock": pa.array([1, None], pa.time64("us")),
            "money": pa.array([1, None], pa.decimal128(12, 2)),
            "raw": pa.array([b"x", None]),
            "tags": pa.array([["a", None], None], pa.list_(pa.string())),
            "place": pa.array([{"x": 1.5}, None], pa.struct([("x", pa.float64())])),
        }
    )
    table = lake.create_table("a.types", rows.schema)
    table.append(rows)
    scan = table.scan()
    assert scan.to_polars().to_arrow().cast(scan.to_arrow().schema).equals(scan.to_arrow())
    for library in ("pyarrow", "polars", "duckdb"):
        assert read_by(library, scan).to_pylist() == scan.to_arrow().to_pylist(), library
    table.append(table.scan())
    assert table.scan().to_arrow().to_pylist() == rows.to_pylist() * 2


def reading_threads() -> int:
    return sum(one.name.startswith("lakehouse-read") for one in threading.enumerate())


def open_data_files(table: lh.Table) -> list[str]:
    links = Path("/proc/self/fd").iterdir()
    named = [str(link.readlink()) for link in links if link.is_symlink() and link.exists()]
    return [one for one in named if table.location in one]


@pytest.mark.parametrize("how", ["pyarrow", "batches", "duckdb", "limit", "never begun"])
def test_a_consumer_that_stops_early_leaves_nothing_open(lake, how):
    table = lake.create_table("a.b", SCHEMA)
    for start in range(3):
        table.append(arrow(made(range(start * 50_000, start * 50_000 + 50_000))))
    scan = table.scan(where="abs(price) >= 0")
    if how == "pyarrow":
        reader = pa.RecordBatchReader.from_stream(scan)
        assert reader.read_next_batch().num_rows > 0
        assert reading_threads() > 0
        del reader
    elif how == "batches":
        assert next(iter(scan.to_batches())).num_rows > 0
    elif how == "duckdb":
        with duckdb.connect() as connection:
            assert len(connection.sql("select * from scan limit 3").fetchall()) == 3
    elif how == "limit":
        assert table.scan(where="abs(price) >= 0", limit=3).to_arrow().num_rows == 3
    else:
        scan.__arrow_c_stream__()
    gc.collect()
    eventually(lambda: not reading_threads())  # DuckDB lets go of a stream in a thread of its own
    assert open_data_files(table) == []


def test_a_stream_is_no_table_in_memory(lake):
    table = lake.create_table("a.b", SCHEMA)
    table.append(arrow(made(range(100_000))))
    reader = pa.RecordBatchReader.from_stream(table.scan())
    assert reader.read_next_batch().num_rows < 100_000


def sources(rows: pa.Table) -> dict[str, object]:
    frame = rows.to_pandas()
    return {
        "pyarrow table": rows,
        "pyarrow batch": rows.combine_chunks().to_batches()[0],
        "pyarrow reader": rows.to_reader(),
        "polars": pl.from_arrow(rows),
        "pandas": frame,
        "pandas, filtered": frame[frame.index >= 0].iloc[::1].set_axis(range(5, 5 + len(frame))),
        "duckdb": duckdb.sql("select * from rows"),
        "a stream": Speaking(rows),
        "an array": SpeakingBatch(rows.combine_chunks().to_batches()[0]),
        "several": [rows.slice(0, 3), pl.from_arrow(rows.slice(3))],
        "a generator": (batch for batch in rows.to_batches(max_chunksize=2)),
    }


class Speaking:
    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


class SpeakingBatch:
    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self._batch.__arrow_c_array__(requested_schema)


ROWS = arrow([{"id": one, "part": f"p{one % 2}", "price": float(one)} for one in range(9)])


@pytest.mark.parametrize("source", list(sources(ROWS)))
def test_whatever_speaks_arrow_is_written(lake, source):
    table = lake.create_table("a.b", SCHEMA)
    assert table.append(sources(ROWS)[source]).rows_inserted == 9
    assert table.scan().to_arrow().sort_by("id").equals(ROWS.cast(table.scan().to_arrow().schema))
    table.overwrite(sources(ROWS)[source], where="id < 4")
    assert table.scan().count() == 9 + 5


def test_a_pandas_frame_with_gaps_in_its_index(lake):
    table = lake.create_table("a.b", SCHEMA)
    frame = ROWS.to_pandas()
    table.append(frame[frame.price > 3])
    assert sorted(table.scan().to_arrow()["price"].to_pylist()) == [4, 5, 6, 7, 8]
    table.append(pa.Table.from_pandas(frame[frame.price > 7]))
    assert table.scan().count() == 6
    owned = lake.create_table("a.owned", SCHEMA.append(pa.field("__index_level_0__", pa.int64())))
    owned.append(frame[frame.price > 7])
    assert owned.scan().to_arrow()["__index_level_0__"].to_pylist() == [8]


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_is_appended_to_itself(lake, kind):
    table, rows = filled(lake, kind, partitioned=False)
    for _ in range(2):
        table.append(table.scan())
    assert counted(table.scan().to_arrow().to_pylist()) == counted(rows * 4)
    table.overwrite(table.scan(where="id > 10"), where="id > 10")
    assert counted(table.scan().to_arrow().to_pylist()) == counted(rows * 4)
    table.overwrite(table.scan(limit=5))
    assert table.scan().count() == 5


def test_a_scan_that_breaks_says_why(lake):
    table = lake.create_table("a.b", SCHEMA)
    table.append(ROWS)
    other = lake.create_table("a.c", SCHEMA)
    Path(local_path(table.scan().plan().files[0].file_path)).unlink()
    with pytest.raises(lh.LakehouseError, match="parquet"):
        other.append(table.scan())
    assert other.refresh().current_snapshot() is None


@pytest.mark.parametrize(
    "wrong",
    [
        pl.Series("id", [1]),
        pl.LazyFrame({"id": [1]}),
        pd.DataFrame([[1, 2]], columns=["id", "id"]),
        [{"id": 1}],
        ["id"],
        {"id": [1]},
        42,
    ],
)
def test_what_is_no_table_is_refused(lake, wrong):
    table = lake.create_table("a.b", SCHEMA)
    with pytest.raises(lh.InvalidInputError, match=r"a\.b: rows come as"):
        table.append(wrong)
    assert table.current_snapshot() is None


def test_a_scan_shows_what_it_is(lake):
    table, _ = filled(lake, "plain", partitioned=False)
    shown = repr(table.scan(where="id > 3", select=["id"], limit=4))
    assert f"TableScan('a.b', snapshot={table.current_snapshot().snapshot_id}" in shown
    assert all(part in shown for part in ("id > 3", "['id']", "limit=4"))
    assert len(shown) < 200
    assert list(itertools.islice(table.scan(limit=0).to_batches(), 1)) == []
