"""Files of one schema read with a later one: columns follow ids, not names or order."""

from __future__ import annotations

import itertools
import json

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
)

from lakehouse.data.reading.scan_reader import ReadRequest, read_table
from lakehouse.data.writing.data_file_writer import WriteRequest, write_all
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.types.arrow_types import schema_to_arrow
from lakehouse.storage.memory import MemoryStorage
from tests.property.arrow_data import plain, rows_of, schemas, tables

NAMES = ["a", "b", "c", "d", "e", "f", "g", "h"]


@st.composite
def evolved_type(draw, kind, ids):
    if isinstance(kind, StructType):
        return StructType(*draw(evolved_fields(kind.fields, ids)))
    if isinstance(kind, ListType):
        return ListType(
            kind.element_id, draw(evolved_type(kind.element_type, ids)), kind.element_required
        )
    if isinstance(kind, MapType):
        value = draw(evolved_type(kind.value_type, ids))
        return MapType(kind.key_id, kind.key_type, kind.value_id, value, kind.value_required)
    wider = {IntegerType: LongType(), FloatType: DoubleType(), DateType: TimestampType()}.get(
        type(kind), kind
    )
    if isinstance(kind, DecimalType):
        wider = DecimalType(min(38, kind.precision + 5), kind.scale)
    return draw(st.sampled_from([kind, wider]))


@st.composite
def evolved_fields(draw, fields, ids):
    """Some fields dropped, all renamed, promoted, made optional, reordered.

    Some new ones between, often with an old name.
    """
    kept = [field for field in fields if draw(st.integers(0, 3))]
    new = [draw(st.sampled_from([None, 7])) for _ in range(draw(st.integers(0 if kept else 1, 2)))]
    names = iter(draw(st.permutations(NAMES)))
    result = []
    for one in kept:
        kind = draw(evolved_type(one.field_type, ids))
        required = one.required and draw(st.booleans())
        result.append(NestedField(one.field_id, next(names), kind, required=required))
    result += [
        NestedField(
            next(ids),
            next(names),
            LongType(),
            required=default is not None,
            initial_default=default,
        )
        for default in new
    ]
    return draw(st.permutations(result))


def project(value, old, new):
    """The oracle: a value of the old type as the new type sees it."""
    if value is None:
        return None
    if isinstance(new, StructType):
        by_id = {field.field_id: field for field in old.fields}
        return {
            field.name: project(
                value[by_id[field.field_id].name],
                by_id[field.field_id].field_type,
                field.field_type,
            )
            if field.field_id in by_id
            else field.initial_default
            for field in new.fields
        }
    if isinstance(new, ListType):
        return [(project(item, old.element_type, new.element_type),) for (item,) in value]
    if isinstance(new, MapType):
        return [(key, project(item, old.value_type, new.value_type)) for key, item in value]
    if isinstance(old, DateType) and isinstance(new, TimestampType):
        return value * 86_400_000_000
    return value


def expected_rows(table, old, new):
    names = [field.name for field in old.fields]
    rows = [
        dict(zip(names, row, strict=True))
        for row in zip(*[plain(c) for c in table.columns], strict=True)
    ]
    return [tuple(project(row, old.as_struct(), new.as_struct()).values()) for row in rows]


@given(data=st.data())
def test_columns_follow_their_ids(data):
    old = data.draw(schemas())
    table = data.draw(tables(old))
    new = Schema(*data.draw(evolved_fields(old.fields, itertools.count(1000))))
    storage = MemoryStorage()
    spec = UNPARTITIONED_PARTITION_SPEC
    files = write_all(
        table, WriteRequest(schema=old, spec=spec, location="memory://t", write_id="w"), storage
    )
    got = read_table(
        [FileScanTask(data_file=file) for file in files],
        ReadRequest(schema=new),
        storage,
    )
    got.validate(full=True)
    assert got.schema == schema_to_arrow(new)
    assert rows_of(got) == expected_rows(table, old, new)


def mapping_of(fields):
    result = []
    for field in fields:
        item = {"field-id": field.field_id, "names": [field.name]}
        children = children_of(field.field_type)
        if children:
            item["fields"] = mapping_of(children)
        result.append(item)
    return result


def children_of(kind):
    if isinstance(kind, ListType):
        return [kind.element_field]
    if isinstance(kind, MapType):
        return [kind.key_field, kind.value_field]
    return kind.fields if isinstance(kind, StructType) else ()


@given(data=st.data())
def test_files_without_ids_follow_the_name_mapping(data):
    old = data.draw(schemas())
    table = data.draw(tables(old).filter(lambda t: t.num_rows > 0))
    new = Schema(*data.draw(evolved_fields(old.fields, itertools.count(1000))))
    # no required children of null structs: plain pyarrow refuses to write those
    bare = pa.schema([f.with_nullable(True) for f in schema_to_arrow(old, field_ids=False)])
    sink = pa.BufferOutputStream()
    storage = MemoryStorage()
    try:
        pq.write_table(
            table.cast(bare) if table.schema != bare else table,
            sink,
            store_schema=data.draw(st.booleans()),
        )
    except pa.ArrowInvalid:
        return
    raw = sink.getvalue().to_pybytes()
    storage.write("memory://t/foreign.parquet", raw)
    one = DataFile(
        file_path="memory://t/foreign.parquet",
        record_count=table.num_rows,
        file_size_in_bytes=len(raw),
    )
    request = ReadRequest(schema=new, name_mapping=json.dumps(mapping_of(old.fields)))
    got = read_table([FileScanTask(data_file=one)], request, storage)
    assert rows_of(got) == expected_rows(table, old, new)


def test_strings_are_not_integers():
    """A column dropped and added again under its name has a new id: old values stay gone."""
    old = Schema(NestedField(1, "x", StringType()), NestedField(2, "y", StringType()))
    new = Schema(NestedField(3, "x", IntegerType()), NestedField(1, "y", StringType()))
    storage = MemoryStorage()
    request = WriteRequest(
        schema=old, spec=UNPARTITIONED_PARTITION_SPEC, location="memory://t", write_id="w"
    )
    (one,) = write_all(pa.table({"x": ["old x"], "y": ["old y"]}), request, storage)
    got = read_table([FileScanTask(data_file=one)], ReadRequest(schema=new), storage)
    assert got.to_pylist() == [{"x": None, "y": "old x"}]
