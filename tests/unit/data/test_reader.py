"""Reading: splits, ranges, metadata columns, foreign files, errors, memory, early stops."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
import types

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import (
    DateType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from lakehouse.data.reading.scan_reader import ReadRequest, read_table, read_tasks
from lakehouse.data.writing.data_file_writer import WriteRequest, write_all
from lakehouse.errors import (
    CorruptMetadataError,
    InvalidPropertyError,
    InvalidSchemaError,
    NoSuchFileError,
    UnsupportedFeatureError,
)
from lakehouse.expressions.filter_binding import bind
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.schema.iceberg_types import METADATA_COLUMNS
from lakehouse.storage.memory import MemoryStorage
from lakehouse.storage.storage_by_scheme import storage_for

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "s", StringType()))


def write(storage, table, schema=SCHEMA, location="memory://read/data", **properties):
    request = WriteRequest(
        schema=schema,
        spec=UNPARTITIONED_PARTITION_SPEC,
        location=location,
        write_id=str(time.monotonic_ns()),
        properties=properties,
    )
    return write_all(table, request, storage)


def foreign(storage, table, name="memory://read/foreign.parquet", **options):
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    raw = sink.getvalue().to_pybytes()
    storage.write(name, raw)
    return DataFile(file_path=name, record_count=table.num_rows, file_size_in_bytes=len(raw))


def numbers(count):
    return pa.table({"id": np.arange(count), "s": [str(n) for n in range(count)]})


def mapping(**ids):
    return json.dumps([{"field-id": i, "names": [name]} for name, i in ids.items()])


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_batches_come_in_order_whatever_the_threads(threads):
    storage = MemoryStorage()
    files = [
        one
        for start in range(5)
        for one in write(
            storage, numbers(100).slice(start * 20, 20), **{"write.parquet.row-group-limit": "6"}
        )
    ]
    request = ReadRequest(schema=SCHEMA, threads=threads, batch_rows=4)
    batches = list(read_tasks([FileScanTask(data_file=file) for file in files], request, storage))
    assert [n for batch in batches for n in batch["id"].to_pylist()] == list(range(100))
    assert max(batch.num_rows for batch in batches) <= 4


def test_byte_ranges_cover_every_row_once():
    storage = MemoryStorage()
    (one,) = write(storage, numbers(100), **{"write.parquet.row-group-limit": "7"})
    for cut in range(0, one.file_size_in_bytes, 97):
        tasks = [
            FileScanTask(data_file=one, start=0, length=cut or 1),
            FileScanTask(data_file=one, start=cut or 1, length=one.file_size_in_bytes - (cut or 1)),
        ]
        schema = Schema(METADATA_COLUMNS["_pos"], SCHEMA.find_field("id"))
        got = read_table(tasks, ReadRequest(schema=schema, table_schema=SCHEMA), storage)
        assert got.to_pylist() == [{"_pos": n, "id": n} for n in range(100)]


def test_metadata_columns_and_row_lineage():
    storage = MemoryStorage()
    row_id, updated = METADATA_COLUMNS["_row_id"], METADATA_COLUMNS["_last_updated_sequence_number"]
    (new,) = write(storage, numbers(3))
    moved_schema = Schema(*SCHEMA.fields, row_id, updated)
    moved = pa.table(
        {
            "id": [8, 9],
            "s": ["a", "b"],
            "_row_id": pa.array([500, None], pa.int64()),
            "_last_updated_sequence_number": pa.array([None, 4], pa.int64()),
        }
    )
    (old,) = write(storage, moved, moved_schema)
    tasks = [
        FileScanTask(
            data_file=dataclasses.replace(new, first_row_id=100, spec_id=0),
            sequence_number=7,
            residual=bind("id > 0", SCHEMA),
        ),
        FileScanTask(data_file=dataclasses.replace(old, first_row_id=200), sequence_number=9),
        FileScanTask(data_file=new, sequence_number=1, residual=bind("id = 0", SCHEMA)),
    ]
    schema = Schema(*METADATA_COLUMNS.values())
    got = read_table(tasks, ReadRequest(schema=schema, table_schema=SCHEMA), storage).to_pylist()
    assert [row["_row_id"] for row in got] == [101, 102, 500, 201, None]
    updated = [row["_last_updated_sequence_number"] for row in got]
    assert updated == [7, 7, 9, 4, None]  # none without ids (specification: Row Lineage)
    assert [row["_pos"] for row in got] == [1, 2, 0, 1, 0]
    assert {row["_file"] for row in got} == {new.file_path, old.file_path}
    assert {(row["_deleted"], row["_spec_id"]) for row in got} == {(False, 0)}


def test_a_column_named_like_a_metadata_column_is_itself():
    schema = Schema(NestedField(1, "_pos", LongType()), NestedField(2, "_file", StringType()))
    storage = MemoryStorage()
    (one,) = write(storage, pa.table({"_pos": [7], "_file": ["mine"]}), schema)
    assert read_table(
        [FileScanTask(data_file=one)], ReadRequest(schema=schema), storage
    ).to_pylist() == [{"_pos": 7, "_file": "mine"}]


def test_no_columns_still_count_rows():
    storage = MemoryStorage()
    (one,) = write(storage, numbers(10))
    request = ReadRequest(schema=Schema(), table_schema=SCHEMA, batch_rows=4)
    assert read_table([FileScanTask(data_file=one)], request, storage).num_rows == 10
    assert (
        read_table(
            [FileScanTask(data_file=one, residual=bind("id > 6", SCHEMA))], request, storage
        ).num_rows
        == 3
    )


def test_identity_partition_values_of_files_without_the_column():
    """Metadata-only migration of a Hive table: the folder has the value, the file has not."""
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "dt", DateType()),
        NestedField(3, "region", StringType(), required=True),
    )
    spec = PartitionSpec(
        PartitionField(2, 1000, IdentityTransform(), "dt"),
        PartitionField(3, 1001, IdentityTransform(), "region"),
        PartitionField(1, 1002, BucketTransform(4), "id_bucket"),
        spec_id=3,
    )
    storage = MemoryStorage()
    one = dataclasses.replace(
        foreign(storage, pa.table({"id": [1, 2]})), spec_id=3, partition=(18_000, "eu", 2)
    )
    request = ReadRequest(
        schema=schema, specs={3: spec}, name_mapping=mapping(id=1, dt=2, region=3)
    )
    got = read_table(
        [FileScanTask(data_file=one, residual=bind("region = 'eu'", schema))], request, storage
    )
    assert [str(row["dt"]) for row in got.to_pylist()] == ["2019-04-14"] * 2
    assert got["region"].to_pylist() == ["eu", "eu"]
    assert got["id"].to_pylist() == [1, 2]
    none = read_table(
        [FileScanTask(data_file=one, residual=bind("region = 'us'", schema))], request, storage
    )
    assert none.num_rows == 0


def test_foreign_types():
    schema = Schema(
        NestedField(1, "i96", TimestampType()),
        NestedField(2, "ms", TimestamptzType()),
        NestedField(3, "ns", TimestampType()),
        NestedField(4, "u", LongType()),
        NestedField(5, "tiny", IntegerType()),
        NestedField(6, "raw", StringType()),
        NestedField(7, "cat", StringType()),
    )
    stamp = -1_500_000_001
    table = pa.table(
        {
            "ms": pa.array([-1], pa.timestamp("ms", "UTC")),
            "ns": pa.array([stamp], pa.timestamp("ns")),
            "u": pa.array([2**32 - 1], pa.uint32()),
            "tiny": pa.array([-3], pa.int8()),
            "raw": pa.array(["ü".encode()], pa.binary()),
            "cat": pa.array(["x"]).dictionary_encode(),
        }
    )
    storage = MemoryStorage()
    ids = {f.name: f.field_id for f in schema.fields}
    (got,) = read_table(
        [FileScanTask(data_file=foreign(storage, table))],
        ReadRequest(schema=schema, name_mapping=mapping(**ids)),
        storage,
    ).to_pylist()
    assert got["ms"].microsecond == 999_000
    assert got["ns"].isoformat() == "1969-12-31T23:59:58.499999"
    assert (got["u"], got["tiny"], got["raw"], got["cat"]) == (2**32 - 1, -3, "ü", "x")
    unsigned = FileScanTask(
        data_file=foreign(storage, table, row_group_size=1), residual=bind("u > 5", schema)
    )
    two = pa.concat_tables([table, table])
    unsigned = dataclasses.replace(unsigned, data_file=foreign(storage, two, row_group_size=1))
    assert (
        read_table(
            [unsigned], ReadRequest(schema=schema, name_mapping=mapping(**ids)), storage
        ).num_rows
        == 2
    )
    far = pa.table({"i96": pa.array([253_402_214_400_000_000], pa.timestamp("us"))})
    ancient = foreign(storage, far, use_deprecated_int96_timestamps=True)
    (got,) = read_table(
        [FileScanTask(data_file=ancient)],
        ReadRequest(schema=schema, name_mapping=mapping(**ids)),
        storage,
    ).to_pylist()
    assert got["i96"].year == 9999


def test_types_that_do_not_fit_are_refused_with_file_and_column():
    storage = MemoryStorage()
    (one,) = write(storage, numbers(1))
    for field in (
        NestedField(1, "id", IntegerType()),
        NestedField(2, "s", LongType()),
        NestedField(1, "id", StructType(NestedField(9, "x", LongType()))),
    ):
        with pytest.raises(InvalidSchemaError, match=f"'{field.name}'") as error:
            read_table([FileScanTask(data_file=one)], ReadRequest(schema=Schema(field)), storage)
        assert one.file_path in str(error.value)


def test_what_is_missing_or_wrong_is_named():
    storage = MemoryStorage()
    (one,) = write(storage, numbers(1))

    def read(file, schema=SCHEMA, **options):
        return read_table(
            [FileScanTask(data_file=file)], ReadRequest(schema=schema, **options), storage
        )

    with pytest.raises(NoSuchFileError, match="nowhere"):
        read(dataclasses.replace(one, file_path="memory://read/nowhere.parquet"))
    with pytest.raises(UnsupportedFeatureError, match="lance"):
        read(dataclasses.replace(one, file_format="lance"))
    with pytest.raises(CorruptMetadataError, match="not readable ORC"):
        read(dataclasses.replace(one, file_format="orc"))
    with pytest.raises(InvalidSchemaError, match=r"lacks required column 'new'"):
        read(one, Schema(NestedField(7, "new", LongType(), required=True)))
    bare = foreign(storage, pa.table({"id": [1]}))
    with pytest.raises(InvalidSchemaError, match=r"no field id .*name-mapping"):
        read(bare)
    with pytest.raises(InvalidPropertyError, match="not a name mapping"):
        read(bare, name_mapping="{}")
    nulls = foreign(storage, pa.table({"id": pa.array([None], pa.int64())}))
    with pytest.raises(InvalidSchemaError, match="required and holds nulls"):
        read(
            nulls,
            Schema(NestedField(1, "id", LongType(), required=True)),
            name_mapping=mapping(id=1),
        )


def test_a_wrong_size_in_the_manifest_is_survived():
    storage = MemoryStorage()
    (one,) = write(storage, numbers(5))
    for size in (0, 1, one.file_size_in_bytes - 1, one.file_size_in_bytes + 1000):
        wrong = dataclasses.replace(one, file_size_in_bytes=size)
        assert (
            read_table(
                [FileScanTask(data_file=wrong)], ReadRequest(schema=SCHEMA), storage
            ).num_rows
            == 5
        )


def test_flipped_bits_are_noticed():
    storage = MemoryStorage()
    table = pa.table({"id": np.random.default_rng(1).integers(0, 2**62, 5000)})
    (one,) = write(storage, table)
    raw = bytearray(storage.read(one.file_path))
    for at in range(200, 20_000, 1999):
        damaged = bytes(raw[:at]) + bytes([raw[at] ^ 0x40]) + bytes(raw[at + 1 :])
        storage.write("memory://read/damaged.parquet", damaged)
        with pytest.raises(CorruptMetadataError, match="damaged"):
            read_table(
                [
                    FileScanTask(
                        data_file=dataclasses.replace(
                            one, file_path="memory://read/damaged.parquet"
                        )
                    )
                ],
                ReadRequest(schema=SCHEMA),
                storage,
            )


def test_errors_come_after_the_rows_before_them():
    storage = MemoryStorage()
    (good,) = write(storage, numbers(5))
    bad = dataclasses.replace(good, file_path="memory://read/gone.parquet")
    stream = read_tasks(
        [FileScanTask(data_file=one) for one in (good, good, bad, good)],
        ReadRequest(schema=SCHEMA),
        storage,
    )
    assert next(stream).num_rows == 5
    assert next(stream).num_rows == 5
    with pytest.raises(NoSuchFileError):
        next(stream)


def test_stopping_early_ends_the_threads(tmp_path):
    storage = storage_for(str(tmp_path), {})
    files = write(
        storage,
        numbers(200_000),
        location=str(tmp_path / "d"),
        **{"write.parquet.row-group-limit": "5000"},
    )
    before = set(threading.enumerate())
    stream = read_tasks(
        [FileScanTask(data_file=file) for file in files],
        ReadRequest(schema=SCHEMA, batch_rows=100),
        storage,
    )
    next(stream)
    assert isinstance(stream, types.GeneratorType)
    stream.close()
    assert not [
        one.name for one in set(threading.enumerate()) - before if one.name.startswith("lakehouse")
    ]


def test_streaming_holds_a_few_batches_only(tmp_path):
    storage = storage_for(str(tmp_path), {})
    count = 4_000_000
    table = pa.table({"id": np.arange(count), "s": np.arange(count).astype(str)})
    files = write(
        storage, table, location=str(tmp_path / "d"), **{"write.parquet.row-group-limit": "250000"}
    )
    size = table.nbytes
    del table
    before, peak, rows = pa.total_allocated_bytes(), 0, 0
    for batch in read_tasks(
        [FileScanTask(data_file=file) for file in files],
        ReadRequest(schema=SCHEMA, batch_rows=8192),
        storage,
    ):
        rows += batch.num_rows
        peak = max(peak, pa.total_allocated_bytes() - before)
    assert rows == count
    assert peak < size / 2


def test_low_cardinality_text_is_the_same_read_as_dictionaries(tmp_path):
    storage = storage_for(str(tmp_path), {})
    rng = np.random.default_rng(2)
    words = pa.array(["red", "green", "", "blü"]).take(
        pa.array(rng.integers(0, 4, 200_000), mask=rng.random(200_000) < 0.1)
    )
    table = pa.table({"id": np.arange(200_000), "s": words})
    files = write(
        storage, table, location=str(tmp_path / "d"), **{"write.parquet.row-group-limit": "60000"}
    )
    got = read_table(
        [FileScanTask(data_file=file, residual=bind("s = 'blü'", SCHEMA)) for file in files],
        ReadRequest(schema=SCHEMA),
        storage,
    )
    assert got.schema.field("s").type == pa.string()
    assert got["id"].to_pylist() == [n for n, s in enumerate(words.to_pylist()) if s == "blü"]


def test_files_alike_share_nothing_that_differs():
    """A file's columns serve the next one if ids and types agree; errors name the right file."""
    storage = MemoryStorage()
    wanted = Schema(
        NestedField(1, "a", LongType(), required=True), NestedField(2, "b", StringType())
    )
    same = [pa.table({"a": [n], "b": [str(n)]}) for n in range(3)]
    kinds = {"a": pa.int64(), "b": pa.string()}

    def stored(table, name, ids):
        fields = [
            pa.field(key, kinds[key], metadata={"PARQUET:field_id": str(ids[key])})
            for key in table.column_names
        ]
        return foreign(
            storage,
            table.cast(pa.schema(fields)),
            f"memory://read/{name}.parquet",
            store_schema=False,
        )

    files = [stored(table, f"same-{n}", {"a": 1, "b": 2}) for n, table in enumerate(same)]
    other = stored(pa.table({"a": [7], "b": ["other id"]}), "other", {"a": 1, "b": 3})
    null = stored(
        pa.table({"a": pa.array([None], pa.int64()), "b": ["x"]}), "null", {"a": 1, "b": 2}
    )

    def read(*chosen):
        tasks = [FileScanTask(data_file=one) for one in chosen]
        return read_table(tasks, ReadRequest(schema=wanted, threads=1), storage)["b"].to_pylist()

    assert read(files[0], other, *files[1:], other) == ["0", None, "1", "2", None]
    with pytest.raises(InvalidSchemaError, match=r"'a' of memory://read/null\.parquet is required"):
        read(*files, null)
