"""Events of Debezium as changes: every op, types by schema, what is refused."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.errors import InvalidInputError, InvalidSchemaError


def local(text):
    return dt.datetime.fromisoformat(text)


def event(op, before=None, after=None, lsn=1, **more):
    return {"op": op, "before": before, "after": after, "source": {"lsn": lsn}, "ts_ms": 5, **more}


def rows(events, keys=("id",), **more):
    return lh.debezium_changes(events, keys, **more).to_pylist()


def with_schema(fields, *payloads):
    row = {"type": "struct", "fields": fields, "field": "after"}
    schema = {"type": "struct", "fields": [row], "name": "db.t.Envelope"}
    return [json.dumps({"schema": schema, "payload": payload}) for payload in payloads]


def test_each_op_is_a_change_and_tombstones_are_none():
    log = [
        event("r", after={"id": 1, "x": "a"}),
        event("c", after={"id": 2, "x": None}, lsn=2),
        event("u", {"id": 1, "x": "a"}, {"id": 1, "x": "b"}, 3),
        event("d", {"id": 2, "x": "gone"}, lsn=4),
        None,
    ]
    expected = [
        {"id": 1, "x": "a", "__op": "r", "__source_lsn": 1, "__ts_ms": 5},
        {"id": 2, "x": None, "__op": "c", "__source_lsn": 2, "__ts_ms": 5},
        {"id": 1, "x": "b", "__op": "u", "__source_lsn": 3, "__ts_ms": 5},
        {"id": 2, "x": None, "__op": "d", "__source_lsn": 4, "__ts_ms": 5},
    ]
    fields = ["source.lsn", "ts_ms"]
    assert rows(log, add_fields=fields) == expected
    assert rows([json.dumps(one) for one in log], add_fields=fields) == expected
    assert rows([json.dumps(one).encode() for one in log], add_fields=fields) == expected


def test_a_key_that_changes_is_a_delete_and_a_row():
    told = [event("u", {"id": 1, "x": "a"}, {"id": 9, "x": "a"}, 7)]
    assert rows(told, add_fields=["source.lsn"]) == [
        {"id": 1, "x": None, "__op": "d", "__source_lsn": 7},
        {"id": 9, "x": "a", "__op": "u", "__source_lsn": 7},
    ]
    assert len(rows([event("u", None, {"id": 9})])) == 1


def test_the_envelope_as_arrow_keeps_its_types():
    row = pa.struct([("id", pa.int32()), ("at", pa.timestamp("us")), ("c", pa.decimal128(9, 2))])
    at = local("2026-06-01")
    table = pa.table(
        {
            "before": pa.array([None, {"id": 1}, None], row),
            "after": pa.array([{"id": 1, "at": at, "c": Decimal("1.50")}, None, None], row),
            "op": ["c", "d", None],
            "source": [{"lsn": 1}, {"lsn": 2}, None],
        }
    )
    found = lh.debezium_changes(table, ["id"], add_fields=["source.lsn"])
    assert found.schema.field("id").type == pa.int32()
    assert found.schema.field("c").type == pa.decimal128(9, 2)
    assert found.to_pylist() == [
        {"id": 1, "at": at, "c": Decimal("1.50"), "__op": "c", "__source_lsn": 1},
        {"id": 1, "at": None, "c": None, "__op": "d", "__source_lsn": 2},
    ]


DECIMAL = {
    "type": "bytes",
    "name": "org.apache.kafka.connect.data.Decimal",
    "parameters": {"scale": "2", "connect.decimal.precision": "9"},
}
VARIABLE = {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal", "fields": []}


def time_of(name, kind="int64"):
    return {"type": kind, "name": f"io.debezium.time.{name}"}


@pytest.mark.parametrize(
    ("schema", "value", "expected", "arrow"),
    [
        ({"type": "int16"}, 7, 7, pa.int32()),
        ({"type": "int64"}, 2**62, 2**62, pa.int64()),
        ({"type": "float"}, 1.5, 1.5, pa.float32()),
        ({"type": "bytes"}, "AQI=", b"\x01\x02", pa.binary()),
        (DECIMAL, "/2o=", Decimal("-1.50"), pa.decimal128(9, 2)),
        (DECIMAL, "AA==", Decimal("0.00"), pa.decimal128(9, 2)),
        (VARIABLE, {"scale": 3, "value": "MDk="}, "12.345", pa.string()),
        (time_of("Date", "int32"), -1, dt.date(1969, 12, 31), pa.date32()),
        (time_of("Timestamp"), 1_780_272_000_123, local("2026-06-01T00:00:00.123"), None),
        (time_of("MicroTimestamp"), -1, local("1969-12-31T23:59:59.999999"), None),
        (time_of("NanoTimestamp"), 1000, local("1970-01-01T00:00:00.000001"), pa.timestamp("us")),
        (
            time_of("ZonedTimestamp", "string"),
            "2026-06-01T02:00:00.5+02:00",
            dt.datetime(2026, 6, 1, 0, 0, 0, 500000, dt.UTC),
            pa.timestamp("us", tz="UTC"),
        ),
        (time_of("MicroTime"), 1_000_001, dt.time(0, 0, 1, 1), pa.time64("us")),
        ({"type": "array", "items": DECIMAL}, ["/2o="], [Decimal("-1.50")], None),
        (
            {"type": "map", "keys": {"type": "string"}, "values": {"type": "int32"}},
            {"a": 1},
            [("a", 1)],
            pa.map_(pa.string(), pa.int32()),
        ),
        (
            {"type": "struct", "fields": [{"type": "int32", "field": "x"}]},
            {"x": 1},
            {"x": 1},
            pa.struct([("x", pa.int32())]),
        ),
        ({"type": "string", "name": "io.debezium.data.Json"}, "{}", "{}", pa.string()),
    ],
    ids=str,
)
def test_a_schema_tells_the_types(schema, value, expected, arrow):
    fields = [{"type": "int32", "field": "id"}, {**schema, "field": "v"}]
    told = with_schema(
        fields,
        event("c", after={"id": 1, "v": value}),
        event("c", after={"id": 2, "v": None}),
    )
    found = lh.debezium_changes(told, ["id"])
    assert found["v"].to_pylist() == [expected, None]
    assert arrow is None or found.schema.field("v").type == arrow


def test_a_column_that_appears_between_events_is_one_column():
    old = with_schema([{"type": "int32", "field": "id"}], event("c", after={"id": 1}))
    new = with_schema(
        [{"type": "int64", "field": "id"}, {"type": "string", "field": "plan"}],
        event("c", after={"id": 2**40, "plan": "free"}),
    )
    found = lh.debezium_changes([*old, *new], ["id"])
    assert found.schema.field("id").type == pa.int64()
    assert found["plan"].to_pylist() == [None, "free"]


@pytest.mark.parametrize(
    ("told", "error", "match"),
    [
        ("{}", InvalidInputError, "several messages, not str"),
        (["{"], InvalidInputError, "event 0 is no JSON"),
        (["[]"], InvalidInputError, "event 0 is list"),
        ([None, {"id": 1}], InvalidInputError, "event 1 has no op.*flattened"),
        ([event("t")], InvalidInputError, r"empties the table \(truncate\)"),
        ([event("m")], InvalidInputError, "op 'm', which changes no row"),
        ([event("d")], InvalidInputError, "has no 'before'"),
        ([event("c")], InvalidInputError, "has no 'after'"),
        ([event("c", after={"x": 1})], InvalidInputError, "no value of the key 'id' in 'after'"),
        (
            [event("u", after={"id": 1, "x": "__debezium_unavailable_value"})],
            InvalidInputError,
            "leaves out the value of 'x'.*REPLICA IDENTITY FULL",
        ),
        (
            [event("c", after={"id": 1}), event("c", after={"id": "a"})],
            InvalidSchemaError,
            "'id' in the events have no type in common",
        ),
        (
            with_schema(
                [{"type": "int32", "field": "id"}, {**time_of("ZonedTimestamp"), "field": "v"}],
                event("c", after={"id": 1, "v": "soon"}),
            ),
            InvalidInputError,
            "event 0 has 'soon' as 'v', which its schema does not allow",
        ),
        (pa.table({"id": [1]}), InvalidInputError, "columns of Debezium's envelope.*are id"),
    ],
    ids=str,
)
def test_what_is_no_change_is_refused(told, error, match):
    with pytest.raises(error, match=match):
        lh.debezium_changes(told, ["id"])


def test_a_log_of_events_arrives_in_the_table(tmp_path):
    lake = lh.load_catalog(f"file://{tmp_path}/warehouse")
    table = lake.create_table("raw.t", pa.schema([("id", pa.int64())]))
    log = [
        event("c", after={"id": 1, "x": "a"}, lsn=1),
        event("c", after={"id": 2, "x": "b"}, lsn=2),
        event("u", {"id": 2}, {"id": 3, "x": "b"}, 3),
        event("d", {"id": 1}, lsn=4),
        event("u", None, {"id": 1, "x": "late"}, 2),
    ]
    changes = lh.debezium_changes(log, ["id"], add_fields=["source.lsn"])
    done = table.apply_changes(changes, ["id"], ["__source_lsn"], "__op = 'd'")
    assert (done.changes, done.superseded, done.applied) == (6, 3, 3)
    assert table.scan().to_arrow().to_pylist() == [{"id": 3, "x": "b", "__source_lsn": 3}]
