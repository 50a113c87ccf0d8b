"""What is written comes back, through us and through plain pyarrow; metrics bound what is there."""

from __future__ import annotations

import io
import math

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.types import BinaryType, DecimalType, FloatType, PrimitiveType, StringType, UUIDType

from lakehouse.data.reading.scan_reader import ReadRequest, read_table
from lakehouse.data.writing.data_file_writer import WriteRequest, write_all
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.storage.memory import MemoryStorage
from tests.property.arrow_data import PRIMITIVES, plain, rows_of, schemas, tables


def request(schema, **changes):
    values = {
        "schema": schema,
        "spec": UNPARTITIONED_PARTITION_SPEC,
        "location": "memory://t/data",
        "write_id": "w",
        **changes,
    }
    return WriteRequest(**values)


@given(data=st.data())
def test_rows_come_back(data):
    schema = data.draw(schemas())
    table = data.draw(tables(schema))
    storage = MemoryStorage()
    files = write_all(table, request(schema), storage)
    assert sum(file.record_count for file in files) == table.num_rows
    back = read_table(
        [FileScanTask(data_file=file) for file in files],
        ReadRequest(schema=schema),
        storage,
    )
    back.validate(full=True)
    assert back.schema == table.schema
    assert rows_of(back) == rows_of(table)
    for file in files:
        raw = storage.read(file.file_path)
        assert len(raw) == file.file_size_in_bytes
        foreign = pq.read_table(io.BytesIO(raw), arrow_extensions_enabled=True)
        assert rows_of(foreign) == rows_of(table)


@pytest.mark.parametrize("kind", PRIMITIVES, ids=str)
@given(data=st.data())
def test_metrics_bound_the_values(kind, data):
    schema = Schema(make_field(kind))
    table = data.draw(tables(schema, max_rows=20))
    length = data.draw(st.integers(1, 20))
    storage = MemoryStorage()
    properties = {
        "write.metadata.metrics.default": f"truncate({length})",
        # files of uuids have one row group
        **({} if isinstance(kind, UUIDType) else {"write.parquet.row-group-limit": "7"}),
    }
    for one in write_all(table, request(schema, properties=properties), storage):
        values = comparable(plain(table.column(0)), kind)
        present = [v for v in values if v is not None]
        numbers = [v for v in present if not (isinstance(v, float) and math.isnan(v))]
        assert one.value_counts == {1: len(values)}
        assert one.null_value_counts == {1: len(values) - len(present)}
        if isinstance(kind, FloatType) or str(kind) == "double":
            assert one.nan_value_counts == {1: len(present) - len(numbers)}
        else:
            assert one.nan_value_counts == {}
        if isinstance(kind, UUIDType):
            # bounds that neither order misreads, or none: tests/unit/spec/test_uuid_order.py
            assert not one.lower_bounds or decode(kind, one.lower_bounds[1]) <= min(numbers)
            assert not one.upper_bounds or decode(kind, one.upper_bounds[1]) >= max(numbers)
            continue
        assert (1 in one.lower_bounds) == bool(numbers)
        if numbers:
            low = comparable([decode(kind, one.lower_bounds[1])], kind)[0]
            assert low <= min(numbers)
            assert truncated(min(numbers), kind, length) == low
            if 1 in one.upper_bounds:
                high = comparable([decode(kind, one.upper_bounds[1])], kind)[0]
                assert high >= max(numbers)
                if isinstance(kind, StringType | BinaryType):
                    assert len(high) <= length
            else:
                assert isinstance(kind, StringType | BinaryType)
                assert truncated(max(numbers), kind, length) == type(max(numbers))(
                    last_of(kind) * length
                )


def make_field(kind):
    from pyiceberg.types import NestedField

    return NestedField(1, "x", kind, required=False)


def decode(kind, raw):
    """pyiceberg's reading of a bound."""
    from pyiceberg.conversions import from_bytes

    value = from_bytes(kind, raw)
    return repr(value) if str(kind) in {"float", "double"} else value


def comparable(values, kind):
    if str(kind) in {"float", "double"}:
        return [None if v is None else float(v) for v in values]
    return values


def truncated(value, kind, length):
    return value[:length] if isinstance(kind, StringType | BinaryType) else value


def last_of(kind):
    return "\U0010ffff" if isinstance(kind, StringType) else b"\xff"


@given(data=st.data())
def test_decimal_bounds_have_the_fewest_bytes(data):
    kind = DecimalType(38, 0)
    schema = Schema(make_field(kind))
    table = data.draw(tables(schema))
    for one in write_all(table, request(schema), MemoryStorage()):
        for raw in (*one.lower_bounds.values(), *one.upper_bounds.values()):
            value = int.from_bytes(raw, "big", signed=True)
            assert len(raw) == 1 or not -(2 ** (8 * len(raw) - 9)) <= value < 2 ** (
                8 * len(raw) - 9
            )


@given(data=st.data())
def test_every_column_of_a_file_has_its_id(data):
    schema = data.draw(schemas())
    table = data.draw(tables(schema).filter(lambda t: t.num_rows > 0))
    storage = MemoryStorage()
    (one,) = write_all(table, request(schema), storage)
    found = pq.read_schema(io.BytesIO(storage.read(one.file_path)))
    assert sorted(ids_in(found)) == sorted(index_by_id(schema))
    leaves = {i for i, f in index_by_id(schema).items() if isinstance(f.field_type, PrimitiveType)}
    assert set(one.value_counts) == leaves
    assert set(one.column_sizes) == leaves


def ids_in(fields):
    import pyarrow as pa

    for field in fields:
        yield int(field.metadata[b"PARQUET:field_id"])
        if pa.types.is_struct(field.type):
            yield from ids_in(field.type)
        elif pa.types.is_list(field.type):
            yield from ids_in([field.type.value_field])
        elif pa.types.is_map(field.type):
            yield from ids_in([field.type.key_field, field.type.item_field])
