"""Partition splitting against a row-by-row split with pyiceberg's transforms."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    UnknownTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    UUIDType,
)

from lakehouse.data.writing.data_file_writer import PartitionSplitter
from lakehouse.errors import InvalidPartitionSpecError, UnsupportedFeatureError
from tests.property.arrow_data import plain, tables

SCHEMA = Schema(
    NestedField(1, "ts", TimestampType()),
    NestedField(2, "id", LongType()),
    NestedField(3, "s", StringType()),
    NestedField(
        4, "n", StructType(NestedField(5, "u", UUIDType()), NestedField(6, "d", DecimalType(9, 2)))
    ),
    NestedField(7, "x", DoubleType()),
    NestedField(8, "f", BooleanType()),
    NestedField(9, "day", DateType()),
)
CHOICES = [
    (1, YearTransform()),
    (1, MonthTransform()),
    (1, DayTransform()),
    (1, HourTransform()),
    (1, IdentityTransform()),
    (2, BucketTransform(3)),
    (2, VoidTransform()),
    (3, TruncateTransform(1)),
    (3, IdentityTransform()),
    (5, BucketTransform(2)),
    (5, IdentityTransform()),
    (6, IdentityTransform()),
    (7, IdentityTransform()),
    (8, IdentityTransform()),
    (9, IdentityTransform()),
]


def spec_of(choices):
    return PartitionSpec(
        *(
            PartitionField(source, 1000 + i, transform, f"p{i}")
            for i, (source, transform) in enumerate(choices)
        )
    )


def internal(source, row):
    names = {1: 0, 2: 1, 3: 2, 7: 4, 8: 5, 9: 6}
    if source in names:
        return row[names[source]]
    nested = row[3]
    return None if nested is None else nested["u" if source == 5 else "d"]


def comparable(partition):
    return tuple("nan" if isinstance(v, float) and math.isnan(v) else repr(v) for v in partition)


@given(data=st.data(), choices=st.lists(st.sampled_from(CHOICES), max_size=4))
def test_split_as_row_by_row(data, choices):
    table = data.draw(tables(SCHEMA, max_rows=15))
    (batch,) = table.to_batches() or [
        pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in table.schema], schema=table.schema)
    ]
    expected = {}
    rows = list(zip(*[plain(c) for c in table.columns], strict=True))
    for number, row in enumerate(rows):
        key = []
        for source, transform in choices:
            value = internal(source, row)
            if source == 7 and value is not None:
                value = float(value)
            value = (
                None
                if isinstance(transform, VoidTransform)
                else transform.transform(SCHEMA.find_type(source))(value)
            )
            if source == 5 and isinstance(transform, IdentityTransform) and value is not None:
                import uuid

                value = uuid.UUID(bytes=value)
            key.append(value)
        expected.setdefault(comparable(key), []).append(number)
    got = {}
    for partition, part in PartitionSplitter(spec_of(choices), SCHEMA).split(batch):
        assert part.schema == batch.schema
        got.setdefault(comparable(partition), []).extend(
            zip(*[plain(c) for c in part.columns], strict=True)
        )
    assert got == {key: [rows[n] for n in numbers] for key, numbers in expected.items()}
    assert list(got) == list(expected)


def test_many_partitions_and_wide_keys():
    """More combinations than 64 bits count: the codes are made dense on the way."""
    count = 3000
    columns = {
        f"c{i}": pa.array([(n * 7919 + i) % (count - i) for n in range(count)]) for i in range(7)
    }
    schema = Schema(*(NestedField(i + 1, f"c{i}", LongType()) for i in range(7)))
    spec = PartitionSpec(
        *(PartitionField(i + 1, 1000 + i, IdentityTransform(), f"c{i}") for i in range(7))
    )
    parts = PartitionSplitter(spec, schema).split(pa.record_batch(columns))
    keys = list(zip(*[c.to_pylist() for c in columns.values()], strict=True))
    assert [key for key, _ in parts] == list(dict.fromkeys(keys))
    assert sum(part.num_rows for _, part in parts) == count


def test_what_cannot_be_split_is_named():
    batch = pa.record_batch({"id": [1]})
    schema = Schema(NestedField(2, "id", LongType()))
    with pytest.raises(InvalidPartitionSpecError, match="source field 9"):
        PartitionSplitter(spec_of([(9, IdentityTransform())]), schema).split(batch)
    with pytest.raises(UnsupportedFeatureError, match="zorder"):
        PartitionSplitter(spec_of([(2, UnknownTransform("zorder"))]), schema).split(batch)
