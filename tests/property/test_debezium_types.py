"""Debezium by its own type table: every type at its ends, in every container and envelope."""

import random

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.errors import InvalidInputError, LakehouseError
from tests.hostile.debezium_events import (
    BIG,
    BYTES,
    CONTAINERS,
    DAY,
    INT32,
    PLACEHOLDER,
    TOASTED,
    TYPES,
    decimal_schema,
    judge_left_out,
    judge_values,
    plain,
    same,
    told,
)


def kept(table, changes):
    """Rows as they lie in a table that the changes were applied to."""
    table.apply_changes(changes, ["id"], ["__source_lsn"], "__op = 'd'")
    found = table.scan().to_arrow().sort_by("id")["v"]
    return found.cast(plain(found.type)).to_pylist()


@pytest.mark.parametrize("kind", TYPES)
def test_a_value_is_what_the_type_table_says_or_refused_by_name(kind, tmp_path):
    draw = random.Random(kind)
    lake = lh.load_catalog(tmp_path.as_uri())
    for number, name in enumerate(CONTAINERS):
        changes, expected = judge_values(draw, kind, [name])
        table = lake.create_table(f"a.t{number}", pa.schema([("id", pa.int64())]))
        found = kept(table, changes)
        assert all(map(same, found, expected)), (name, found, expected)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("container", ["bare", "list", "map", "struct"])
def test_arrow_events_keep_times_that_python_has_not(unit, container):
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    time = pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)

    def events(kind, values):
        shapes = {
            "bare": (kind, lambda value: value),
            "list": (pa.list_(kind), lambda value: [value]),
            "map": (pa.map_(pa.string(), kind), lambda value: [("k", value)]),
            "struct": (pa.struct([("x", kind)]), lambda value: {"x": value}),
        }
        of, put = shapes[container]
        row = pa.struct([("id", pa.int64()), ("v", of)])
        rows = [{"id": at, "v": put(value)} for at, value in enumerate(values)]
        return pa.table({"op": ["c"] * len(rows), "after": pa.array(rows, row)})

    for kind, values in (
        (time, [0, DAY * per_second - 1]),
        (pa.timestamp(unit), [-(BIG - 1), BIG - 1, 0]),
        (pa.timestamp(unit, "UTC"), [BIG - 1]),
        (pa.date32(), [-(2**31), 2**31 - 1]),
    ):
        given = events(kind, values)
        found = lh.debezium_changes(given, ["id"])["v"]
        assert found.type == given.schema.field("after").type.field("v").type
        assert found.combine_chunks().equals(given["after"].combine_chunks().field("v"))
    for wrong in (DAY * per_second, -1):
        with pytest.raises(InvalidInputError, match=r"event 1 has .* as 'v'.*time of day"):
            lh.debezium_changes(events(time, [0, wrong]), ["id"])


@pytest.mark.parametrize("container", ["bare", "array", "map", "struct"])
@pytest.mark.parametrize("kind", TOASTED)
@pytest.mark.parametrize("with_schema", [True, False])
def test_a_placeholder_never_overwrites_a_value(kind, container, with_schema, tmp_path):
    events = judge_left_out(kind, [container], with_schema=with_schema)
    lake = lh.load_catalog(tmp_path.as_uri())
    table = lake.create_table("a.t", pa.schema([("id", pa.int64())]))
    before = lh.debezium_changes(events[:1], ["id"])
    table.apply_changes(before, ["id"], ["id"], "__op = 'd'")
    if with_schema and kind not in ("bytes", "bytea[]", "geometry", "date[]"):  # flattened
        _, put, _ = CONTAINERS[container]
        kind_of = before.schema.field("v").type
        columns = pa.schema([("id", pa.int64()), ("v", kind_of), ("__op", pa.string())])
        rows = [{"id": 0, "v": put(TOASTED[kind][2]), "__op": "u"}]
        flat = pa.Table.from_pylist(rows, columns)
        with pytest.raises(InvalidInputError, match="leaves out the value of 'v'"):
            table.apply_changes(flat, ["id"], ["id"], "__op = 'd'")
    assert table.scan().to_arrow().num_rows == 1


def test_what_only_looks_like_a_placeholder_is_a_value():
    values = [f"x{PLACEHOLDER}", PLACEHOLDER.upper(), f'{{"{PLACEHOLDER}": 1}}', ""]
    events = list(told({"type": "string"}, values))
    assert lh.debezium_changes(events, ["id"])["v"].to_pylist() == values
    lists = [BYTES[1:], [*BYTES, 1], [], [1] * len(BYTES)]
    events = list(told({"type": "array", "items": INT32}, lists))
    assert lh.debezium_changes(events, ["id"])["v"].to_pylist() == lists


@pytest.mark.parametrize(
    ("schema", "match"),
    [
        (decimal_schema(65, 30), "'v'.*65 digits.*decimal.handling.mode=string"),
        ({"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal"}, "cannot be read"),
        ({"type": "array"}, "cannot be read"),
        ({"type": "int128"}, "unknown type 'int128'"),
    ],
)
def test_a_schema_that_no_column_has_is_told(schema, match):
    with pytest.raises(InvalidInputError, match=match):
        lh.debezium_changes(list(told(schema, [None])), ["id"])


@pytest.mark.parametrize(
    "event",
    [
        {"op": "c", "after": '{"_id": 1}'},
        {"op": "c", "after": [1]},
        {"op": "c", "after": {"id": 1}, "before": 5},
        {"schema": None, "payload": "x"},
        {"schema": {"fields": [5]}, "payload": {}},
    ],
    ids=str,
)
def test_what_is_no_envelope_is_a_typed_error(event):
    with pytest.raises(LakehouseError):
        lh.debezium_changes([event], ["id"])


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_no_writer_stores_a_time_outside_a_day(unit, tmp_path):
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    time = pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
    lake = lh.load_catalog(tmp_path.as_uri())
    for number, of in enumerate([time, pa.list_(time), pa.struct([("x", time)])]):
        whole = pa.int32() if time.bit_width == 32 else pa.int64()
        plain_of = [whole, pa.list_(whole), pa.struct([("x", whole)])][number]
        micros = pa.time64("us")
        column = [micros, pa.list_(micros), pa.struct([("x", micros)])][number]
        table = lake.create_table(f"a.t{number}", pa.schema([("v", column)]))
        for wrong in (-1, DAY * per_second):
            value = [wrong, [0, wrong], {"x": wrong}][number]
            rows = pa.table({"v": pa.array([None, value], plain_of).view(of)})
            with pytest.raises(LakehouseError, match=r"'v.*outside a day"):
                table.append(rows)
        assert table.current_snapshot() is None


def test_columns_of_nulls_alone_come_with_their_first_value(tmp_path):
    lake = lh.load_catalog(tmp_path.as_uri())
    table = lake.create_table("a.t", pa.schema([("id", pa.int64())]))
    for number, value in enumerate([None, {"x": None, "y": 1}, {"x": "a", "y": 2}]):
        event = {"op": "c", "after": {"id": number, "v": value}, "source": {"lsn": number}}
        changes = lh.debezium_changes([event], ["id"], add_fields=["source.lsn"])
        table.apply_changes(changes, ["id"], ["__source_lsn"], "__op = 'd'")
    assert table.scan(select=["id", "v"]).to_arrow().sort_by("id").to_pylist() == [
        {"id": 0, "v": None},
        {"id": 1, "v": {"y": 1, "x": None}},
        {"id": 2, "v": {"y": 2, "x": "a"}},
    ]
