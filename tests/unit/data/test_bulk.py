"""Files decoded by Polars: which ones, same results as Arrow's reader, and failures."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import subprocess
import sys
import textwrap
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import (
    And,
    EqualTo,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    Or,
    StartsWith,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from lakehouse.data.reading import whole_files
from lakehouse.data.reading.page_checksums import verified, verify_pages
from lakehouse.data.reading.parquet_footer import ColumnChunk
from lakehouse.data.reading.polars import polars_columns as bulk
from lakehouse.data.reading.polars import polars_decoder
from lakehouse.data.reading.scan_reader import METADATA_COLUMNS, ReadRequest, read_table
from lakehouse.data.writing.data_file_writer import WriteRequest, write_all
from lakehouse.data.writing.delete_writer import FileDeletes, write_deletes
from lakehouse.errors import CorruptMetadataError, InvalidSchemaError, NoSuchFileError
from lakehouse.expressions.filter_binding import bind
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.storage.memory import MemoryStorage
from lakehouse.storage.storage_by_scheme import storage_for

KINDS = [
    BooleanType(),
    IntegerType(),
    LongType(),
    FloatType(),
    DoubleType(),
    DateType(),
    TimestampType(),
    TimestamptzType(),
]
KINDS += [StringType(), BinaryType()]
SCHEMA = Schema(*(NestedField(i, str(kind), kind) for i, kind in enumerate(KINDS, 1)))
COUNTER = itertools.count()


def rows(count, start=0):
    """Values of every type that Polars decodes, with nulls, long and short texts."""
    n = np.arange(start, start + count)
    times = pa.array(n * 1_000_003 - 10**9, pa.timestamp("us"), mask=n % 11 == 5)
    columns = {
        "boolean": pa.array(n % 3 == 0, mask=n % 5 == 1),
        "int": pa.array(n.astype(np.int32) - 50, mask=n % 7 == 3),
        "long": pa.array(n * 2**33),
        "float": pa.array(np.where(n % 13 == 0, np.nan, n / 3).astype(np.float32)),
        "double": pa.array(np.where(n % 17 == 0, -0.0, n / 7), mask=n % 19 == 2),
        "date": pa.array((n % 40000 - 20000).astype(np.int32), pa.int32()).cast(pa.date32()),
        "timestamp": times,
        "timestamptz": times.cast(pa.timestamp("us", "UTC")),
        "string": pa.array(
            [None if i % 6 == 4 else f"{i % 10}" * (i % 23) + "ü" for i in n.tolist()]
        ),
        "binary": pa.array(
            [None if i % 8 == 1 else bytes([i % 256]) * (i % 15) for i in n.tolist()], pa.binary()
        ),
    }
    return pa.table(columns)


def write(storage, table, schema=SCHEMA, location=None, **properties):
    request = WriteRequest(
        schema=schema,
        spec=UNPARTITIONED_PARTITION_SPEC,
        location=location or "memory://bulk/data",
        write_id=f"w{next(COUNTER)}",
        properties=properties,
    )
    return write_all(table, request, storage)


def tasks_of(files, **more):
    return [FileScanTask(data_file=one, length=one.file_size_in_bytes, **more) for one in files]


@pytest.fixture
def decoded(monkeypatch):
    """How many rows each call of the decoder was asked for."""
    calls = []
    real = polars_decoder.decode

    def spy(sources, columns, lengths, **more):
        calls.append((len(sources), sum(lengths), more.get("first_row"), more.get("where")))
        return real(sources, columns, lengths, **more)

    monkeypatch.setattr(polars_decoder, "decode", spy)
    return calls


def both(tasks, storage, schema=SCHEMA, **more):
    request = ReadRequest(schema=schema, table_schema=SCHEMA, **more)
    by_arrow = read_table(tasks, dataclasses.replace(request, bulk=False), storage)
    by_polars = read_table(tasks, dataclasses.replace(request, bulk=True), storage)
    by_polars.validate(full=True)
    assert by_polars.schema == by_arrow.schema
    assert repr(by_polars.to_pylist()) == repr(by_arrow.to_pylist())
    return by_polars


@pytest.mark.parametrize("groups", ["1000000", "700"])
def test_a_large_file_is_decoded_by_row_groups_and_gives_the_same_rows(tmp_path, decoded, groups):
    storage, table = storage_for(str(tmp_path)), rows(5000)
    files = write(
        storage, table, location=f"file://{tmp_path}", **{"write.parquet.row-group-limit": groups}
    )
    assert files[0].file_size_in_bytes > 65_536
    got = both(tasks_of(files), storage)
    assert repr(got.to_pylist()) == repr(table.to_pylist())
    assert [rows for _, rows, _, _ in decoded] == [5000]


def test_many_small_files_are_one_call(decoded):
    storage = MemoryStorage()
    files = [one for start in range(0, 500, 50) for one in write(storage, rows(50, start))]
    got = both(tasks_of(files), storage)
    assert repr(got.to_pylist()) == repr(rows(500).to_pylist())
    assert [(sources, rows) for sources, rows, _, _ in decoded] == [(10, 500)]


WHERES = [
    EqualTo("long", 7 * 2**33),
    And(GreaterThanOrEqual("int", 100), LessThan("int", 120)),
    Or(In("string", ["0ü", "nothing"]), IsNull("string")),
    StartsWith("string", "33"),
    GreaterThanOrEqual("timestamptz", "1970-01-01T00:00:00+00:00"),
    LessThan("date", "1920-01-01"),
    GreaterThanOrEqual("double", 600.0),
    GreaterThanOrEqual("float", 600.0),
    EqualTo("boolean", True),
    EqualTo("binary", b"\x04"),
    And(EqualTo("int", 1), EqualTo("int", 2)),
]


@pytest.mark.parametrize("where", WHERES, ids=str)
def test_polars_leaves_out_what_the_filter_leaves_out(tmp_path, monkeypatch, where):
    came = []
    real = polars_decoder.decode

    def spy(*arguments, **more):
        for batch in real(*arguments, **more):
            came.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(polars_decoder, "decode", spy)
    storage = storage_for(str(tmp_path))
    files = write(storage, rows(5000), location=f"file://{tmp_path}")
    wanted = SCHEMA.select("long", "string")
    got = both(tasks_of(files, residual=bind(where, SCHEMA)), storage, schema=wanted)
    assert sum(came) == got.num_rows < 4000
    both(tasks_of(files), storage, schema=wanted, where=bind(where, SCHEMA))


@pytest.mark.parametrize("kind", [TimestampNanoType(), TimestamptzNanoType()], ids=str)
def test_nanoseconds_are_compared_as_such(decoded, kind):
    schema = Schema(NestedField(1, "t", kind))
    zone = "+00:00" if isinstance(kind, TimestamptzNanoType) else ""
    unit = pa.timestamp("ns", "UTC" if zone else None)
    ticks = pa.array([1_700_000_000_123_456_000 + n for n in range(1000)]).cast(unit)
    storage = MemoryStorage()
    request = WriteRequest(
        schema=schema,
        spec=UNPARTITIONED_PARTITION_SPEC,
        location="memory://ns",
        write_id=f"n{next(COUNTER)}",
        format_version=3,
    )
    files = write_all(pa.table({"t": ticks}), request, storage)
    for operator, count in ((LessThan, 789), (GreaterThanOrEqual, 211), (EqualTo, 1)):
        where = operator("t", f"2023-11-14T22:13:20.123456789{zone}")
        got = read_table(
            tasks_of(files, residual=bind(where, schema)),
            ReadRequest(schema=schema, bulk=True),
            storage,
        )
        assert got.num_rows == count
    assert len(decoded) == 3


def test_row_groups_that_pruning_leaves_are_read_alone(tmp_path, decoded):
    storage = storage_for(str(tmp_path))
    files = write(
        storage,
        rows(5000),
        location=f"file://{tmp_path}",
        **{"write.parquet.row-group-limit": "500"},
    )
    where = Or(
        LessThan("long", 500 * 2**33),
        And(GreaterThanOrEqual("long", 3000 * 2**33), LessThan("long", 4000 * 2**33)),
    )
    got = both(tasks_of(files, residual=bind(where, SCHEMA)), storage)
    assert got["long"].to_pylist() == [n * 2**33 for n in (*range(500), *range(3000, 4000))]
    assert sorted((first, rows) for _, rows, first, _ in decoded) == [(0, 500), (3000, 1000)]


def test_deleted_rows_and_positions(tmp_path, decoded):
    storage = storage_for(str(tmp_path))
    location = f"file://{tmp_path}"
    files = write(
        storage, rows(5000), location=location, **{"write.parquet.row-group-limit": "600"}
    )
    gone = np.arange(0, 5000, 7)
    request = WriteRequest(
        schema=SCHEMA,
        spec=UNPARTITIONED_PARTITION_SPEC,
        location=location,
        write_id="d",
        format_version=3,
    )
    deletes = tuple(write_deletes([FileDeletes(files[0], gone)], request, storage))
    schema = Schema(METADATA_COLUMNS["_pos"], *SCHEMA.fields)
    got = both(
        tasks_of(files, deletes=deletes, residual=bind("int >= 10", SCHEMA)),
        storage,
        schema=schema,
    )
    assert not set(got["_pos"].to_pylist()) & set(gone.tolist())
    assert got["_pos"].to_pylist() == [n for n in range(60, 5000) if n % 7 != 3 and n % 7]
    assert sum(rows for _, rows, _, _ in decoded) == 5000


@pytest.mark.parametrize("kind", [DecimalType(20, 2), TimeType(), UUIDType()], ids=str)
def test_types_that_polars_holds_otherwise_are_left_to_arrow(decoded, kind):
    schema = Schema(NestedField(1, "v", kind))
    values = {
        DecimalType: pa.array([None, Decimal(1), Decimal(2)], pa.decimal128(20, 2)),
        TimeType: pa.array([1, 2, 3], pa.time64("us")),
    }
    column = values.get(type(kind), pa.array([b"0" * 16, None], pa.uuid()))
    storage = MemoryStorage()
    files = write(storage, pa.table({"v": column}), schema=schema)
    got = read_table(tasks_of(files), ReadRequest(schema=schema, bulk=True), storage)
    assert got["v"].to_pylist() == column.to_pylist()
    assert not decoded


@pytest.mark.parametrize("name", ["^a.*$", "*", "a b", "a.b", "ü", ""])
def test_names_are_names_not_patterns(decoded, name):
    schema = Schema(NestedField(1, name, LongType()), NestedField(2, "abc", LongType()))
    storage = MemoryStorage()
    files = write(storage, pa.table({name: [1, 2], "abc": [3, 4]}), schema=schema)
    got = read_table(
        tasks_of(files),
        ReadRequest(schema=Schema(schema.fields[0]), table_schema=schema, bulk=True),
        storage,
    )
    assert got.to_pydict() == {name: [1, 2]}
    assert bool(decoded) == (name not in {"^a.*$", "*"})


def flipped(storage, one, at):
    raw = bytearray(storage.read(one.file_path))
    raw[at] ^= 0x10
    path = one.file_path.replace(".parquet", f"-{at}.parquet")
    storage.write(path, bytes(raw))
    return dataclasses.replace(one, file_path=path)


@pytest.mark.parametrize("others", [0, 3])
def test_a_flipped_bit_is_noticed_or_changes_nothing(others):
    """As with Arrow's reader: page headers hold unneeded numbers.

    Polars may read over another one than Arrow.
    """
    storage = MemoryStorage()
    (one,) = write(storage, rows(20))
    before = [other for _ in range(others) for other in write(storage, rows(20))]
    group = pq.read_metadata(pa.BufferReader(storage.read(one.file_path))).row_group(0)
    pages = (
        max(
            group.column(i).data_page_offset + group.column(i).total_compressed_size
            for i in range(group.num_columns)
        )
        - 30
    )
    noticed = 0
    for at in range(4, pages, 1 + others):
        damaged = flipped(storage, one, at)
        try:
            got = read_table(
                tasks_of([*before, damaged]), ReadRequest(schema=SCHEMA, bulk=True), storage
            )
        except CorruptMetadataError as error:
            assert damaged.file_path in str(error)  # noqa: PT017
            noticed += 1
        else:
            assert repr(got.to_pylist()) == repr(rows(20).to_pylist() * (others + 1))
    assert noticed > 0.9 * len(range(4, pages, 1 + others))


def test_a_flipped_bit_of_a_large_file_is_noticed(tmp_path):
    storage = storage_for(str(tmp_path))
    files = write(
        storage,
        rows(5000),
        location=f"file://{tmp_path}",
        **{"write.parquet.row-group-limit": "900"},
    )
    for at in np.random.default_rng(3).integers(4, files[0].file_size_in_bytes // 2, 40).tolist():
        damaged = flipped(storage, files[0], at)
        with pytest.raises(CorruptMetadataError) as caught:
            read_table(tasks_of([damaged]), ReadRequest(schema=SCHEMA, bulk=True), storage)
        assert damaged.file_path in str(caught.value)


def foreign(storage, table, **options):
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    name, raw = f"memory://bulk/foreign-{next(COUNTER)}.parquet", sink.getvalue().to_pybytes()
    storage.write(name, raw)
    return DataFile(file_path=name, record_count=table.num_rows, file_size_in_bytes=len(raw)), raw


OPTIONS = [
    {"write_page_checksum": True},
    {"write_page_checksum": True, "data_page_version": "2.0"},
    {"write_page_checksum": True, "write_page_index": True, "data_page_size": 100},
    {"write_page_checksum": False},
    {"compression": "snappy", "use_dictionary": False, "write_page_checksum": True},
    {"compression": "none", "row_group_size": 30, "write_page_checksum": True},
    {"use_deprecated_int96_timestamps": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_files_of_other_writers(options):
    """Other layouts of pages: checksums of all that carry them are found, and rows are the same."""
    storage = MemoryStorage()
    ids = [
        pa.field(one.name, one.type, metadata={"PARQUET:field_id": str(i)})
        for i, one in enumerate(rows(1).schema, 1)
    ]
    table = rows(200).cast(pa.schema(ids))
    files = [foreign(storage, table.slice(start, 100), **options)[0] for start in (0, 100)]
    got = both(tasks_of(files), storage)
    assert repr(got.to_pylist()) == repr(table.to_pylist())


def test_files_without_rows_that_follow_each_other():
    storage = MemoryStorage()
    ids = [
        pa.field(one.name, one.type, metadata={"PARQUET:field_id": str(i)})
        for i, one in enumerate(rows(1).schema, 1)
    ]
    empty = rows(1).cast(pa.schema(ids)).slice(0, 0)
    assert both(tasks_of([foreign(storage, empty)[0] for _ in range(2)]), storage).num_rows == 0


def test_checksums_without_the_footer():
    storage = MemoryStorage()
    table = pa.table({"a": np.arange(300), "b": [f"{n % 9}" for n in range(300)]})
    _, usual = foreign(storage, table, write_page_checksum=True, write_page_index=True)
    size = pq.read_metadata(pa.BufferReader(usual)).row_group(0).total_byte_size
    assert verified(usual, 2, 300, size)
    assert not verified(usual, 2, 301, size)
    assert not verified(usual, 2, 299, size)
    assert not verified(usual, 2, 300, size + 1)
    missed = []
    for at in range(4, 600):
        damaged = bytearray(usual)
        damaged[at] ^= 1
        if verified(bytes(damaged), 2, 300, size):
            missed.append(at)
    # what is left are kinds of pages and encodings, which decoders check
    assert len(missed) < 20
    _, unusual = foreign(storage, table, write_page_checksum=False)
    assert not verified(unusual, 2, 300, size)
    assert not verified(b"", 2, 300, size)


def test_a_size_below_zero_does_not_lead_backwards():
    """A page of -19 bytes, no values and the checksum of nothing: it ends where it begins."""
    header = b"\x15\x00\x15\x00\x15\x25\x15\x00\x1c\x15\x00\x15\x00\x15\x06\x15\x06\x00\x00"
    assert len(header) == 19
    assert not verified(b"PAR1" + header, 1, 1, 19)
    chunk = ColumnChunk(
        start=4,
        has_dictionary=False,
        compressed_bytes=40,
        uncompressed_bytes=19,
        values=1,
        null_count=0,
        minimum=None,
        maximum=None,
    )
    assert not verify_pages(b"PAR1" + header, [chunk], "x.parquet")


def test_a_required_column_with_nulls_names_the_file_that_holds_them():
    storage = MemoryStorage()
    lax = Schema(NestedField(1, "v", LongType()))
    strict = Schema(NestedField(1, "v", LongType(), required=True))
    good, bad, last = (
        one
        for values in ([1], [None], [3])
        for one in write(storage, pa.table({"v": pa.array(values, pa.int64())}), lax)
    )
    with pytest.raises(InvalidSchemaError) as caught:
        read_table(tasks_of([good, bad, last]), ReadRequest(schema=strict, bulk=True), storage)
    assert bad.file_path in str(caught.value)


def test_arrow_reads_what_polars_cannot_and_the_log_says_so(monkeypatch, caplog):
    storage = MemoryStorage()
    files = [one for start in (0, 50) for one in write(storage, rows(50, start))]

    def fails(*_, **__):
        raise polars_decoder.NotDecodedError("no such encoding")
        yield

    monkeypatch.setattr(polars_decoder, "decode", fails)
    with caplog.at_level(logging.INFO, logger=whole_files.__name__):
        got = read_table(tasks_of(files), ReadRequest(schema=SCHEMA, bulk=True), storage)
    assert repr(got.to_pylist()) == repr(rows(100).to_pylist())
    assert "no such encoding" in caplog.text
    assert files[0].file_path in caplog.text


def test_text_that_is_not_text_is_read_as_before():
    """Polars checks UTF-8; what Arrow's reader hands over is decided in one place."""
    storage = MemoryStorage()
    broken = pa.array([b"\xff\xfe", b"ok"], pa.binary())
    field = pa.field("string", pa.string(), metadata={"PARQUET:field_id": "9"})
    one, _ = foreign(
        storage, pa.Table.from_arrays([broken.view(pa.string())], schema=pa.schema([field]))
    )
    request = ReadRequest(schema=SCHEMA.select("string"), table_schema=SCHEMA)
    by_arrow, by_polars = (
        read_table(tasks_of([one]), dataclasses.replace(request, bulk=way), storage)
        for way in (False, True)
    )
    assert (
        by_polars.column(0).cast(pa.binary()).to_pylist()
        == by_arrow.column(0).cast(pa.binary()).to_pylist()
        == [b"\xff\xfe", b"ok"]
    )


def test_a_missing_file_is_a_missing_file(tmp_path):
    storage = storage_for(str(tmp_path))
    (one,) = write(storage, rows(5000), location=f"file://{tmp_path}")
    Path(one.file_path.removeprefix("file://")).unlink()
    with pytest.raises(NoSuchFileError, match=one.file_path):
        read_table(tasks_of([one]), ReadRequest(schema=SCHEMA, bulk=True), storage)


def test_tasks_are_opened_together_as_long_as_they_are_alike():
    small = DataFile(file_path="a", record_count=10, file_size_in_bytes=100)
    large = DataFile(file_path="b", record_count=5_000_000, file_size_in_bytes=100)
    deletes = FileScanTask(data_file=small, deletes=(small,))
    other = FileScanTask(data_file=small, residual=bind("int is null", SCHEMA))
    plain = FileScanTask(data_file=small)
    groups = list(
        whole_files.together(
            [plain] * 70
            + [deletes, deletes, plain, plain, other, other, FileScanTask(data_file=large)],
            2,
        )
    )
    assert [len(group) for group in groups] == [64, 6, 1, 1, 2, 2, 1]
    assert [
        len(group) for group in whole_files.together([FileScanTask(data_file=large)] * 3, 2)
    ] == [1, 1, 1]
    assert not list(whole_files.together([], 2))


@pytest.mark.parametrize("loaded", [True, False])
def test_polars_is_loaded_for_much_data_only(monkeypatch, loaded):
    monkeypatch.setattr(
        bulk, "sys", type("Sys", (), {"modules": {"polars": object()} if loaded else {}})
    )
    assert bulk.worthwhile(1, 100 << 20)
    assert bulk.worthwhile(100, 1000)
    assert not bulk.worthwhile(1, 1000)
    assert bulk.worthwhile(1, 5 << 20) == loaded


def run(script, *arguments):
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_a_small_table_does_not_load_polars(tmp_path):
    done = run(
        """
        import sys
        import pyarrow as pa
        import lakehouse as lh
        catalog = lh.load_catalog(f"file://{sys.argv[1]}")
        table = catalog.create_table("a.b", pa.schema([("x", pa.int64())]))
        table.append(pa.table({"x": [1, 2]}))
        assert table.scan().to_arrow().num_rows == 2
        assert "polars" not in sys.modules
        """,
        str(tmp_path),
    )
    assert done.returncode == 0, done.stderr


def test_a_forked_child_reads_with_arrow(tmp_path):
    """Polars' threads do not survive a fork: a child that called it would wait for ever."""
    done = run(
        """
        import os, sys
        import polars
        import pyarrow as pa
        import lakehouse as lh
        catalog = lh.load_catalog(f"file://{sys.argv[1]}")
        table = catalog.create_table("a.b", pa.schema([("x", pa.int64())]))
        for number in range(70):
            table.append(pa.table({"x": [number]}))
        assert sorted(table.scan().to_arrow()["x"].to_pylist()) == list(range(70))
        child = os.fork()
        if child == 0:
            from lakehouse.data.reading.polars import polars_columns as bulk
            assert not bulk.may_load_polars()
            assert sorted(table.scan().to_arrow()["x"].to_pylist()) == list(range(70))
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        """,
        str(tmp_path),
    )
    assert done.returncode == 0, done.stderr
