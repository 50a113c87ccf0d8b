"""Files as they land: sizes, order, partitions, paths, failures, memory."""

from __future__ import annotations

import io
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    UnknownType,
    UUIDType,
)

from lakehouse.data.writing.data_file_writer import (
    _MOST_OPEN_FILES,
    WriteRequest,
    write_all,
    write_data_files,
)
from lakehouse.errors import InvalidPropertyError, InvalidSchemaError, StorageError
from lakehouse.spec.partitioning.sort_order import NullOrder, SortDirection, SortField, SortOrder
from lakehouse.storage.memory import MemoryStorage
from lakehouse.storage.storage_by_scheme import storage_for

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "x", DoubleType()),
    NestedField(3, "s", StringType()),
)


def request(**changes):
    values = {
        "schema": SCHEMA,
        "spec": UNPARTITIONED_PARTITION_SPEC,
        "location": "memory://t/data/",
        "write_id": "abc",
        "table": "a.b",
    }
    return WriteRequest(**{**values, **changes})


def rows(count, start=0):
    numbers = np.arange(start, start + count)
    return pa.table({"id": numbers, "x": numbers / 3, "s": [f"text {n}" for n in numbers]})


def read(storage, one):
    return pq.read_table(io.BytesIO(storage.read(one.file_path)))


def test_names_partitions_and_pickling():
    spec = PartitionSpec(
        PartitionField(1, 1000, BucketTransform(2), "id_bucket"),
        PartitionField(3, 1001, IdentityTransform(), "s"),
    )
    storage = MemoryStorage()
    table = pa.table({"id": [1, 2, 3], "s": ["a/b", "a/b", None]})
    shipped = pickle.loads(pickle.dumps(request(spec=spec)))  # noqa: S301
    files = write_all(table, shipped, storage, task="7-2")
    for number, one in enumerate(files, 1):
        bucket, text = one.partition
        folder = f"id_bucket={bucket}/s={'null' if text is None else 'a%2Fb'}"
        assert one.file_path == f"memory://t/data/{folder}/00000-7-2-abc-{number:05d}.parquet"
        assert one.sort_order_id is None
        assert one.spec_id == 0
    assert sorted(i for one in files for i in read(storage, one)["id"].to_pylist()) == [1, 2, 3]


def test_files_roll_at_the_target_size():
    rng = np.random.default_rng(3)
    table = pa.table({"id": rng.integers(0, 2**62, 400_000), "x": rng.random(400_000)})
    target = 500_000
    files = write_all(
        table, request(properties={"write.target-file-size-bytes": str(target)}), MemoryStorage()
    )
    assert len(files) > 5
    assert all(0.7 * target < one.file_size_in_bytes < 1.5 * target for one in files[:-1])
    assert sum(one.record_count for one in files) == 400_000


def test_split_offsets_are_where_row_groups_start():
    storage = MemoryStorage()
    (one,) = write_all(
        rows(100), request(properties={"write.parquet.row-group-limit": "30"}), storage
    )
    footer = pq.read_metadata(io.BytesIO(storage.read(one.file_path)))
    assert footer.num_row_groups == 4
    assert len(one.split_offsets) == 4
    assert one.split_offsets[0] == 4
    assert list(one.split_offsets) == sorted(one.split_offsets)
    assert footer.row_group(0).column(0).compression == "ZSTD"


def test_a_sorted_file_has_many_row_groups_where_these_are_small():
    by_id = SortField(1, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_FIRST)
    order = SortOrder((by_id,), order_id=3)
    storage, ids = MemoryStorage(), np.random.default_rng(5).permutation(3000)
    (one,) = write_all(
        pa.table({"id": ids, "x": ids / 7}).to_batches(max_chunksize=97),
        request(sort_order=order, properties={"write.parquet.row-group-limit": "500"}),
        storage,
    )
    assert len(one.split_offsets) == 6
    assert read(storage, one)["id"].to_pylist() == list(range(3000))


@pytest.mark.parametrize("direction", list(SortDirection))
@pytest.mark.parametrize("nulls", list(NullOrder))
def test_every_file_is_sorted(direction, nulls):
    order = SortOrder(
        (
            SortField(2, IdentityTransform(), direction, nulls),
            SortField(1, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_FIRST),
        ),
        order_id=3,
    )
    rng = np.random.default_rng(5)
    values = [
        None if v == 0 else [np.nan, -np.inf, np.inf, -0.0, 0.0, -1.0, 1.0][v - 1]
        for v in rng.integers(0, 8, 3000)
    ]
    table = pa.table({"id": rng.integers(0, 50, 3000), "x": pa.array(values, pa.float64())})
    properties = {"lakehouse.write.buffer-bytes": "20000", "write.parquet.row-group-limit": "500"}
    storage = MemoryStorage()
    files = write_all(
        table.to_batches(max_chunksize=97),
        request(sort_order=order, properties=properties),
        storage,
    )
    assert len(files) > 1
    assert sum(one.record_count for one in files) == 3000
    for one in files:
        assert one.sort_order_id == 3
        data = read(storage, one)
        keys = [
            (*rank(x, direction, nulls), i)
            for x, i in zip(data["x"].to_pylist(), data["id"].to_pylist(), strict=True)
        ]
        assert keys == sorted(keys)


def rank(value, direction, nulls):
    """-Infinity < -value < -0 < 0 < value < Infinity < NaN, nulls at their end."""
    if value is None:
        return (0 if nulls == NullOrder.NULLS_FIRST else 2, 0, 0)
    sign = 1 if direction == SortDirection.ASC else -1
    if np.isnan(value):
        return (1, sign * 9, 0)
    return (
        1,
        0,
        sign
        * (
            float(np.sign(value)) * (2 if np.isinf(value) else 1)
            + (0.25 if value == 0 and not np.signbit(value) else 0)
        ),
    )


def test_sorted_input_is_not_cut_at_the_buffer():
    """Runs that follow each other go on in the same file, up to the target size."""
    by_id = SortField(1, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_FIRST)
    order = SortOrder((by_id,), order_id=1)
    batches = (rows(1000, start).to_batches()[0] for start in range(0, 50_000, 1000))
    (one,) = write_all(
        batches,
        request(sort_order=order, properties={"lakehouse.write.buffer-bytes": "100000"}),
        MemoryStorage(),
    )
    assert one.record_count == 50_000
    assert len(one.split_offsets) > 3


@pytest.mark.slow
def test_more_partitions_than_open_files_and_a_small_buffer():
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
    storage = CountingStorage()
    partitions = _MOST_OPEN_FILES * 3
    table = pa.table({"id": np.arange(20_000) % partitions, "x": np.arange(20_000) / 7})
    files = write_all(
        table.to_batches(max_chunksize=1000),
        request(spec=spec, properties={"lakehouse.write.buffer-bytes": "50000"}),
        storage,
    )
    assert storage.most_open <= _MOST_OPEN_FILES
    found = {}
    for one in files:
        data = read(storage, one)
        assert set(data["id"].to_pylist()) == set(one.partition)
        found.setdefault(one.partition, []).extend(data["x"].to_pylist())
    for (key,), xs in found.items():
        assert sorted(xs) == [n / 7 for n in range(key, 20_000, partitions)]
    assert len(found) == partitions


class CountingStorage(MemoryStorage):
    """Counts output streams that are open at a time."""

    def __init__(self):
        super().__init__()
        self.open_now = self.most_open = 0

    def open_output(self, location):
        stream = super().open_output(location)
        self.open_now += 1
        self.most_open = max(self.most_open, self.open_now)
        close = stream.close

        def counted():
            self.open_now -= 1
            close()

        stream.close = counted
        return stream


def test_memory_follows_the_buffer_not_the_data():
    """Partitions of unequal size: buffers stay bounded, slices do not keep batches alive."""
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(50), "id_bucket"))
    before = pa.total_allocated_bytes()
    peak = [0]

    def batches():
        for start in range(0, 2_000_000, 50_000):
            peak[0] = max(peak[0], pa.total_allocated_bytes() - before)
            yield pa.record_batch(
                {
                    "id": np.arange(start, start + 50_000),
                    "x": np.random.default_rng(start).random(50_000),
                }
            )

    files = write_all(
        batches(),
        request(spec=spec, properties={"lakehouse.write.buffer-bytes": "4000000"}),
        MemoryStorage(),
    )
    assert sum(one.record_count for one in files) == 2_000_000
    assert peak[0] < 16_000_000


def test_bad_data_in_the_middle_leaves_nothing(tmp_path):
    storage = storage_for(str(tmp_path), {})
    batches = [rows(1000).to_batches()[0], pa.record_batch({"id": ["not a number"]})]
    with pytest.raises(InvalidSchemaError, match=r"'id' of table a\.b"):
        write_all(
            iter(batches),
            request(
                location=str(tmp_path / "data"), properties={"write.target-file-size-bytes": "1000"}
            ),
            storage,
        )
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_files_handed_out_stay_when_the_rest_fails(tmp_path):
    storage = storage_for(str(tmp_path), {})
    batches = [rows(1000).to_batches()[0], pa.record_batch({"id": ["not a number"]})]
    writing = write_data_files(
        iter(batches),
        request(location=str(tmp_path), properties={"write.target-file-size-bytes": "1000"}),
        storage,
    )
    taken = []
    with pytest.raises(InvalidSchemaError):
        taken.extend(writing)
    assert sorted(str(p) for p in tmp_path.rglob("*") if p.is_file()) == sorted(
        one.file_path for one in taken
    )
    assert taken


def test_a_consumer_that_stops_early_leaves_only_what_it_took(tmp_path):
    storage = storage_for(str(tmp_path), {})
    batches = (rows(1000, start).to_batches()[0] for start in range(0, 100_000, 1000))
    writing = write_data_files(
        batches,
        request(location=str(tmp_path), properties={"write.target-file-size-bytes": "10000"}),
        storage,
    )
    first = next(writing)
    writing.close()
    assert [str(p) for p in tmp_path.rglob("*") if p.is_file()] == [first.file_path]


class FullDisk(MemoryStorage):
    """Runs out of space after some bytes."""

    def __init__(self, budget):
        super().__init__()
        self.budget = budget

    def open_output(self, location):
        stream = super().open_output(location)
        write = stream.write

        def limited(data):
            self.budget -= len(data)
            if self.budget < 0:
                raise StorageError(f"no space left for {location}", location=location)
            return write(data)

        stream.write = limited
        return stream


@pytest.mark.parametrize("budget", [0, 3, 100, 2000, 5000])
def test_a_full_disk_surfaces_and_leaves_nothing(budget):
    storage = FullDisk(budget)
    place = f"memory://full-disk-{budget}"
    properties = {"write.target-file-size-bytes": "1500"}
    with pytest.raises(StorageError, match="no space left"):
        write_all(
            rows(1000).to_batches(max_chunksize=100),
            request(location=place, properties=properties),
            storage,
        )
    assert list(storage.list(place)) == []


def test_unknown_columns_are_not_stored():
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "nothing", UnknownType()))
    storage = MemoryStorage()
    (one,) = write_all(
        pa.table({"id": [1], "nothing": pa.nulls(1)}), request(schema=schema), storage
    )
    assert read(storage, one).column_names == ["id"]


def test_no_rows_make_no_file():
    assert write_all(rows(0), request(), MemoryStorage()) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("write.parquet.compression-codec", "zip"),
        ("write.target-file-size-bytes", "0"),
        ("write.parquet.row-group-size-bytes", "many"),
        ("write.parquet.compression-level", "high"),
        ("lakehouse.write.encoding.column.x", "zigzag"),
    ],
)
def test_unusable_properties_are_named(name, value):
    with pytest.raises(InvalidPropertyError, match=name.replace(".", r"\.")):
        write_all(rows(1), request(properties={name: value}), MemoryStorage())


def test_columns_have_the_encodings_that_properties_name():
    schema = Schema(
        NestedField(1, "a.b", LongType()),
        NestedField(2, "s", StructType(NestedField(3, "text", StringType()))),
        NestedField(4, "other", StringType()),
    )
    named = {
        "a.b": "delta_binary_packed",
        "s.text": "DELTA_BYTE_ARRAY",
        "other": "BYTE_STREAM_SPLIT",  # not for texts, which keep the writer's
        "gone": "PLAIN",
    }
    properties = {f"lakehouse.write.encoding.column.{name}": one for name, one in named.items()}
    data = pa.table({"a.b": [1, None], "s": [{"text": "x"}, None], "other": ["y", "y"]})
    storage = MemoryStorage()
    (file,) = write_all(data, request(schema=schema, properties=properties), storage)
    group = pq.read_metadata(io.BytesIO(storage.read(file.file_path))).row_group(0)
    encodings = [set(group.column(at).encodings) - {"RLE"} for at in range(3)]
    assert encodings == [
        {"DELTA_BINARY_PACKED"},
        {"DELTA_BYTE_ARRAY"},
        {"PLAIN", "RLE_DICTIONARY"},
    ]
    assert read(storage, file).to_pylist() == data.to_pylist()


def made_of(kind, numbers):
    """A value for each number."""
    if isinstance(kind, pa.UuidType):
        return pa.array([int(one).to_bytes(16, "big") for one in numbers], pa.binary(16)).cast(kind)
    if pa.types.is_decimal(kind):
        return pa.array(numbers).cast(pa.decimal128(19, 0)).cast(kind)
    if pa.types.is_string(kind):
        return pa.array([f"value {one:07d}" for one in numbers])
    return pa.array(numbers / 7 if pa.types.is_floating(kind) else numbers).cast(kind)


@pytest.mark.parametrize(("nulls", "inside"), [(0, False), (0.9, False), (0.1, True)])
@pytest.mark.parametrize("count", [1000, 200_000])
@pytest.mark.parametrize("each", [1, 2, 10, 1000])
@pytest.mark.parametrize(
    ("kind", "type_"),
    [
        (pa.int64(), LongType()),
        (pa.float64(), DoubleType()),
        (pa.decimal128(18, 0), DecimalType(18, 0)),
        (pa.string(), StringType()),
        (pa.uuid(), UUIDType()),
    ],
)
def test_a_column_has_a_dictionary_where_that_makes_it_smaller(
    kind, type_, each, count, nulls, inside
):
    """Beside both kinds of file that Arrow writes: shuffled values, each of them some times."""
    rng = np.random.default_rng(0)
    numbers = rng.permutation(np.arange(count) // each)
    values = made_of(kind, numbers).filter(pa.array(rng.random(count) >= nulls))
    values = pa.concat_arrays([values, pa.nulls(count - len(values), values.type)])
    field = NestedField(1, "x", type_)
    if inside:
        values, field = (
            pa.StructArray.from_arrays([values], ["x"]),
            NestedField(2, "s", StructType(field)),
        )
    data, storage = pa.table({field.name: values}), MemoryStorage()
    plain = {"write.parquet.compression-codec": "uncompressed"}
    (file,) = write_all(data, request(schema=Schema(field), properties=plain), storage)

    def size(source):
        return pq.read_metadata(source).row_group(0).column(0).total_compressed_size

    sizes = []
    for dictionary in (True, False):
        sink = io.BytesIO()
        pq.write_table(
            data, sink, compression="none", use_dictionary=dictionary, row_group_size=1 << 20,
            store_decimal_as_integer=True, dictionary_pagesize_limit=2 << 20,
        )  # fmt: skip
        sizes.append(size(sink))
    assert size(io.BytesIO(storage.read(file.file_path))) <= 1.1 * min(sizes), sizes
    assert read(storage, file).cast(data.schema).equals(data)


def test_a_day_partition_of_an_old_and_of_no_time():
    schema = Schema(NestedField(1, "ts", TimestampType()))
    spec = PartitionSpec(PartitionField(1, 1000, DayTransform(), "ts_day"))
    table = pa.table({"ts": pa.array([-1, 0, None], pa.int64()).view(pa.timestamp("us"))})
    files = write_all(table, request(schema=schema, spec=spec), MemoryStorage())
    assert {one.partition for one in files} == {(-1,), (0,), (None,)}
    assert any("ts_day=1969-12-31" in one.file_path for one in files)
