"""Debezium by its own type table: every type at its ends, in every container and envelope.

What a value means is computed from Debezium's documentation ("Data type mappings" of its
connectors) with whole numbers, without Arrow and without the conversions under test. A value that
its type does not have is refused by name. `LAKEHOUSE_DEBEZIUM_CASES=20000` tries so many.
"""

import base64
import json
import math
import os
import random
import struct
from decimal import Decimal

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.errors import InvalidInputError, LakehouseError

CASES = int(os.environ.get("LAKEHOUSE_DEBEZIUM_CASES", "600"))
DAY = 86_400
BIG = 2**63


def base64_of(number: int, padding: int = 0) -> str:
    size = (number.bit_length() + 8) // 8 + padding
    return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()


def whole(bits):
    ends = [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, 0, -1, 1]
    wrong = [2 ** (bits - 1), -(2 ** (bits - 1)) - 1, 1.5, True, "1"]

    def legal(draw):
        return draw.choice([*ends, draw.randint(ends[0], ends[1])])

    return legal, lambda value: value, lambda draw: draw.choice(wrong)


def scaled(times, divided=1):
    """A time since the epoch in units of which so many, or a part, are a microsecond."""
    low, high = -(BIG // (times * divided)) * divided, (BIG - 1) // times

    def legal(draw):
        at = draw.choice([0, -1, 1, low, high, draw.randint(low, high)])
        return at // divided * divided

    def wrong(draw):
        return draw.choice([BIG, -BIG - 1, *([high + 1, low - 1] if times > 1 else [divided - 1])])

    return (
        legal,
        lambda value: value * times // divided,
        wrong if divided > 1 or times > 1 else None,
    )


def of_day(units):
    """A time of day; MySQL's TIME reaches from -838:59:59 to 838:59:59."""
    step = max(1, units // 1_000_000)

    def legal(draw):
        most = DAY * units - step
        return draw.choice([0, step, most, draw.randrange(0, DAY * units) // step * step])

    def wrong(draw):
        return draw.choice(
            [DAY * units, -step, -1, 3_020_399 * units, -3_020_399 * units, 100 * 3600 * units]
        )

    return legal, lambda value: value * 1_000_000 // units, wrong


def civil_days(year, month, day):
    """Days since 1970-01-01 of the proleptic Gregorian calendar, counted month by month."""
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    lengths = [31, 29 if leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    before = year - 1
    days = 365 * before + before // 4 - before // 100 + before // 400
    return days + sum(lengths[: month - 1]) + day - 719_163


def zoned():
    def legal(draw):
        year = draw.choice(
            [-4713, 1, 1582, 1970, 2026, 2000, 9999, 21016, 294_246, draw.randint(1, 9999)]
        )
        month, day = draw.choice([(1, 1), (12, 31), (2, 28), (10, 25), (3, 1)])
        clock = draw.choice(["00:00:00", "23:59:59", "12:30:07"])
        part = draw.choice(["", ".5", ".123", ".123456", ".000001", ".100000000", ".123456000"])
        offset = draw.choice(["Z", "+00:00", "+02:00", "-11:30", "+14:00", "-00:44:30"])
        sign = "+" if year > 9999 else "-" if year < 0 else ""
        return f"{sign}{abs(year):04}-{month:02}-{day:02}T{clock}{part}{offset}"

    def means(text):
        sign, digits = (-1, text[1:]) if text[0] == "-" else (1, text.lstrip("+"))
        date, _, rest = digits.partition("T")
        year, month, day = date.split("-")
        at = next(i for i, letter in enumerate(rest) if letter in "Z+-")
        clock, offset = rest[:at], rest[at:]
        hour, minute, second = clock.split(":")
        second, _, part = second.partition(".")
        micros = int((part or "0").ljust(9, "0")) // 1000
        shift = 0
        if offset != "Z":
            fields = [*map(int, offset[1:].split(":")), 0][:3]
            shift = (fields[0] * 3600 + fields[1] * 60 + fields[2]) * (
                -1 if offset[0] == "-" else 1
            )
        seconds = civil_days(sign * int(year), int(month), int(day)) * DAY
        seconds += int(hour) * 3600 + int(minute) * 60 + int(second) - shift
        return seconds * 1_000_000 + micros

    wrong = [
        "2026-06-01",
        "2026-06-01T12:00:00",
        "2026-02-30T12:00:00Z",
        "2026-06-01T25:00:00Z",
        "2026-06-01T12:00:00.1234567Z",
        "infinity",
        "+294278-01-01T00:00:00Z",
        5,
    ]
    return legal, means, lambda draw: draw.choice(wrong)


def real(layout, ends):
    def legal(draw):
        return draw.choice([0.0, -0.0, 1.5, -2, *ends, "NaN", "Infinity", "-Infinity"])

    def means(value):
        return struct.unpack(layout, struct.pack(layout, float(value)))[0]

    beyond = [1e39, -1e300] if layout == "<f" else [2**60 + 1]
    return legal, means, lambda draw: draw.choice([*beyond, "nan", "1.5", "inf", True, "x"])


def decimals(precision, scale):
    most = 10**precision - 1

    def legal(draw):
        number = draw.choice([0, 1, -1, most, -most, draw.randint(-most, most), 127, 128, -128])
        return base64_of(max(-most, min(most, number)), draw.randint(0, 2))

    def means(text):
        number = int.from_bytes(base64.b64decode(text), "big", signed=True)
        return Decimal(f"{number}e{-scale}")

    def wrong(draw):
        return draw.choice([base64_of(most + 1), base64_of(-most - 1), "A*==", 5])

    return legal, means, wrong


def decimal_schema(precision, scale):
    told = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    return {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": told}


def chosen(legal, means=lambda value: value, wrong=()):
    return (
        (lambda draw: draw.choice(legal)),
        means,
        (lambda draw: draw.choice(wrong)) if wrong else None,
    )


def time_of(name, kind="int64"):
    return {"type": kind, "name": f"io.debezium.time.{name}"}


def connect_time(name, kind):
    return {"type": kind, "name": f"org.apache.kafka.connect.data.{name}"}


VARIABLE = {
    "type": "struct",
    "name": "io.debezium.data.VariableScaleDecimal",
    "fields": [{"type": "int32", "field": "scale"}, {"type": "bytes", "field": "value"}],
}
POINT = {
    "type": "struct",
    "name": "io.debezium.data.geometry.Geometry",
    "fields": [{"type": "bytes", "field": "wkb"}, {"type": "int32", "field": "srid"}],
}
TYPES = {
    "boolean": ({"type": "boolean"}, chosen([True, False], wrong=[1, "true"])),
    "int8": ({"type": "int8"}, whole(8)),
    "int16": ({"type": "int16"}, whole(16)),
    "int32": ({"type": "int32"}, whole(32)),
    "int64": ({"type": "int64"}, whole(64)),
    "float": ({"type": "float"}, real("<f", [0.1, 3.4028234663852886e38, 1e-45])),
    "double": ({"type": "double"}, real("<d", [0.1, 1.7976931348623157e308, 5e-324, 2**53])),
    "string": ({"type": "string"}, chosen(["", "ä\u0000", "NaN", "1"], wrong=[1, [], {}])),
    "bytes": (
        {"type": "bytes"},
        chosen(["", "AAE=", "////"], base64.b64decode, ["A", "AA-=", "A A=", 3]),
    ),
    "Bits": (
        {"type": "bytes", "name": "io.debezium.data.Bits"},
        chosen(["Aw=="], base64.b64decode),
    ),
    "Json": ({"type": "string", "name": "io.debezium.data.Json"}, chosen(['{"a": 1.10}', "null"])),
    "Uuid": (
        {"type": "string", "name": "io.debezium.data.Uuid"},
        chosen(["c0ffee00-0000-0000-0000-000000000001"]),
    ),
    "Enum": ({"type": "string", "name": "io.debezium.data.Enum"}, chosen(["a", ""])),
    "decimal(9, 2)": (decimal_schema(9, 2), decimals(9, 2)),
    "decimal(38, 0)": (decimal_schema(38, 0), decimals(38, 0)),
    "decimal(38, 38)": (decimal_schema(38, 38), decimals(38, 38)),
    "decimal(3, -2)": (decimal_schema(3, -2), decimals(3, -2)),
    "decimal(2, 5)": (decimal_schema(2, 5), (*decimals(2, 5)[:2], None)),
    "variable": (
        VARIABLE,
        chosen(
            [
                {"scale": 2, "value": "AJY="},
                {"scale": -3, "value": "+Q=="},
                {"scale": 0, "value": "AA=="},
            ],
            lambda it: {2: "1.50", -3: "-7000", 0: "0"}[it["scale"]],
            [{"scale": 2}, {"scale": "x", "value": "AA=="}, "1.5"],
        ),
    ),
    "geometry": (
        POINT,
        chosen(
            [{"wkb": "AQEAAAA=", "srid": 4326}, {"wkb": "AQEAAAA=", "srid": None}],
            lambda it: {"wkb": base64.b64decode(it["wkb"]), "srid": it["srid"]},
            [{"wkb": "AA==", "more": 1}, {"wkb": 1, "srid": 1}],
        ),
    ),
    "Date": (time_of("Date", "int32"), whole(32)),
    "connect.Date": (connect_time("Date", "int32"), whole(32)),
    "Timestamp": (time_of("Timestamp"), scaled(1000)),
    "connect.Timestamp": (connect_time("Timestamp", "int64"), scaled(1000)),
    "MicroTimestamp": (time_of("MicroTimestamp"), scaled(1)),
    "NanoTimestamp": (time_of("NanoTimestamp"), scaled(1, 1000)),
    "ZonedTimestamp": (time_of("ZonedTimestamp", "string"), zoned()),
    "Time": (time_of("Time", "int32"), of_day(1000)),
    "connect.Time": (connect_time("Time", "int32"), of_day(1000)),
    "MicroTime": (time_of("MicroTime"), of_day(1_000_000)),
    "NanoTime": (time_of("NanoTime"), of_day(1_000_000_000)),
    "ZonedTime": (time_of("ZonedTime", "string"), chosen(["10:00:00Z", "10:00:00+02:00"])),
    "Year": (time_of("Year", "int32"), chosen([0, 1901, 2155])),
    "MicroDuration": (time_of("MicroDuration"), whole(64)),
    "Interval": (time_of("Interval", "string"), chosen(["P1Y2M", "P0D"])),
}
INT32 = {"type": "int32"}
CONTAINERS = {
    "bare": (lambda of: of, lambda value: value, lambda value: value),
    "array": (
        lambda of: {"type": "array", "items": {**of, "optional": True}},
        lambda value: [value, None],
        lambda value: [value, None],
    ),
    "map": (
        lambda of: {"type": "map", "keys": {"type": "string"}, "values": of},
        lambda value: {"k": value},
        lambda value: [("k", value)],
    ),
    "map by number": (
        lambda of: {"type": "map", "keys": INT32, "values": of},
        lambda value: [[7, value]],
        lambda value: [(7, value)],
    ),
    "struct": (
        lambda of: {"type": "struct", "fields": [{**of, "field": "x"}, {**INT32, "field": "y"}]},
        lambda value: {"x": value, "y": None},
        lambda value: {"x": value, "y": None},
    ),
    "array of structs": (
        lambda of: {
            "type": "array",
            "items": {"type": "struct", "fields": [{**of, "field": "x"}]},
        },
        lambda value: [{"x": value}],
        lambda value: [{"x": value}],
    ),
}


def told(schema, values):
    """The event of an insert of each value, with its schema."""
    row = {
        "type": "struct",
        "field": "after",
        "fields": [{"type": "int64", "field": "id"}, {**schema, "field": "v"}],
    }
    for number, value in enumerate(values):
        payload = {"op": "c", "after": {"id": number, "v": value}, "source": {"lsn": number}}
        yield {"schema": {"type": "struct", "fields": [row]}, "payload": payload}


ENVELOPES = {
    "text": lambda events: [json.dumps(one) for one in events],
    "bytes": lambda events: [json.dumps(one).encode() for one in events],
    "parsed": list,
}


def plain(kind):
    """The type with numbers for times: Python's own end with the year 9999."""
    if pa.types.is_temporal(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(plain(one.type)) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(plain(kind.key_type), plain(kind.item_type))
    return pa.list_(plain(kind.value_type)) if pa.types.is_list(kind) else kind


def same(one, other):
    if isinstance(one, float) and isinstance(other, float):
        return (math.isnan(one) and math.isnan(other)) or (one, math.copysign(1, one)) == (
            other,
            math.copysign(1, other),
        )
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


def kept(table, changes):
    """Rows as they lie in a table that the changes were applied to."""
    table.apply_changes(changes, ["id"], ["__source_lsn"], "__op = 'd'")
    found = table.scan().to_arrow().sort_by("id")["v"]
    return found.cast(plain(found.type)).to_pylist()


@pytest.mark.parametrize("kind", TYPES)
def test_a_value_is_what_the_type_table_says_or_refused_by_name(kind, tmp_path):
    schema, (legal, means, wrong) = TYPES[kind]
    draw = random.Random(f"{kind}")
    lake = lh.load_catalog(tmp_path.as_uri())
    for number in range(max(len(CONTAINERS), CASES // len(TYPES))):
        name = list(CONTAINERS)[number % len(CONTAINERS)]
        shape, put, out = CONTAINERS[name]
        envelope = ENVELOPES[draw.choice(list(ENVELOPES))]
        values = [legal(draw) for _ in range(draw.randint(1, 4))]
        expected = [out(means(value)) for value in values]
        changes = lh.debezium_changes(
            envelope(told(shape(schema), [put(value) for value in values])),
            ["id"],
            add_fields=["source.lsn"],
        )
        found = changes["v"].cast(plain(changes["v"].type)).to_pylist()
        assert all(map(same, found, expected)), (name, values, found, expected)
        if number < len(CONTAINERS):
            table = lake.create_table(f"a.t{number}", pa.schema([("id", pa.int64())]))
            found = kept(table, changes)
            assert all(map(same, found, expected)), (name, values, found, expected)
        if wrong is not None:
            bad = wrong(draw)
            events = envelope(told(shape(schema), [put(value) for value in [*values, bad]]))
            with pytest.raises(InvalidInputError, match=rf"event {len(values)} has .* as 'v'"):
                lh.debezium_changes(events, ["id"])


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


PLACEHOLDER = "__debezium_unavailable_value"
BYTES = list(PLACEHOLDER.encode())
TOASTED = {
    "text": ({"type": "string"}, "a", PLACEHOLDER),
    "bytes": ({"type": "bytes"}, "AA==", base64.b64encode(PLACEHOLDER.encode()).decode()),
    "hex": ({"type": "string"}, "00", PLACEHOLDER.encode().hex()),
    "text[]": ({"type": "array", "items": {"type": "string"}}, ["a"], [PLACEHOLDER]),
    "bytea[]": (
        {"type": "array", "items": {"type": "bytes"}},
        ["AA=="],
        [base64.b64encode(PLACEHOLDER.encode()).decode()],
    ),
    "int4[]": ({"type": "array", "items": INT32}, [1], BYTES),
    "int8[]": ({"type": "array", "items": {"type": "int64"}}, [1], BYTES),
    "date[]": ({"type": "array", "items": time_of("Date", "int32")}, [1], BYTES),
    # what java.util.UUID.nameUUIDFromBytes makes of the placeholder
    "uuid[]": (
        {"type": "array", "items": {"type": "string", "name": "io.debezium.data.Uuid"}},
        ["c0ffee00-0000-0000-0000-000000000001"],
        ["UUID"],
    ),
    "hstore": (
        {"type": "map", "keys": {"type": "string"}, "values": {"type": "string"}},
        {"a": "b"},
        {PLACEHOLDER: PLACEHOLDER},
    ),
    "hstore as json": (
        {"type": "string", "name": "io.debezium.data.Json"},
        '{"a":"b"}',
        json.dumps({PLACEHOLDER: PLACEHOLDER}, separators=(",", ":")),
    ),
    "geometry": (
        POINT,
        {"wkb": "AA==", "srid": 1},
        {
            "wkb": base64.b64encode(
                bytes.fromhex("0101000020E6100000000000FC83D797C1000000FC83D797C1")
            ).decode(),
            "srid": 4326,
        },
    ),
}


def uuid_of_the_placeholder():
    """As the Javadoc of nameUUIDFromBytes has it: MD5, version 3, variant 2."""
    import hashlib

    digest = bytearray(hashlib.md5(PLACEHOLDER.encode(), usedforsecurity=False).digest())
    digest[6] = digest[6] & 0x0F | 0x30
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return "-".join([text[:8], text[8:12], text[12:16], text[16:20], text[20:]])


@pytest.mark.parametrize("container", ["bare", "array", "map", "struct"])
@pytest.mark.parametrize("kind", TOASTED)
@pytest.mark.parametrize("with_schema", [True, False])
def test_a_placeholder_never_overwrites_a_value(kind, container, with_schema, tmp_path):
    schema, first, toasted = TOASTED[kind]
    if kind == "uuid[]":
        toasted = [uuid_of_the_placeholder()]
    shape, put, _ = CONTAINERS[container]
    events = list(told(shape(schema), [put(first), put(toasted)]))
    if not with_schema:
        events = [one["payload"] for one in events]
    with pytest.raises(InvalidInputError, match=r"event 1 leaves out the value of 'v'.*FULL"):
        lh.debezium_changes(events, ["id"])
    lake = lh.load_catalog(tmp_path.as_uri())
    table = lake.create_table("a.t", pa.schema([("id", pa.int64())]))
    before = lh.debezium_changes(events[:1], ["id"])
    table.apply_changes(before, ["id"], ["id"], "__op = 'd'")
    rows = [{"id": 0, "v": put(toasted), "__op": "u"}]
    kind_of = before.schema.field("v").type
    if with_schema and "AA" not in str(first) and kind != "date[]":  # flattened: as it comes
        value = lh.debezium_changes(list(told(shape(schema), [put(first)])), ["id"]).schema
        flat = pa.Table.from_pylist(
            rows, pa.schema([("id", pa.int64()), ("v", kind_of), ("__op", pa.string())])
        )
        assert flat.schema.field("v").type == value.field("v").type
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
