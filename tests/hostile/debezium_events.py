"""Events of Debezium by its own type table: every type at its ends, in containers and envelopes.

What a value means is computed from Debezium's documentation ("Data type mappings" of its
connectors) with whole numbers, without Arrow and without the conversions under test. A value that
its type does not have is refused by name, and so is a value that the source left out.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import random
import re
import struct
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

import lakehouse as lh
from lakehouse.errors import InvalidInputError
from tests.hostile.foreign_mutants import Mutant

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


PLACEHOLDER = "__debezium_unavailable_value"
BYTES = list(PLACEHOLDER.encode())


def uuid_of_the_placeholder():
    """As the Javadoc of nameUUIDFromBytes has it: MD5, version 3, variant 2."""
    digest = bytearray(hashlib.md5(PLACEHOLDER.encode(), usedforsecurity=False).digest())
    digest[6] = digest[6] & 0x0F | 0x30
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return "-".join([text[:8], text[8:12], text[12:16], text[16:20], text[20:]])


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
        [uuid_of_the_placeholder()],
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


def judge_values(draw: random.Random, kind: str, containers: Sequence[str]) -> tuple[Any, Any]:
    """Events of a type inside of containers, as the type table has them, and then one that is none.

    Returns:
        The changes, and the values that they have to have.

    Raises:
        AssertionError: they are others, or the one beyond the type is taken.
    """
    schema, (legal, means, wrong) = TYPES[kind]
    for name in containers:
        schema = CONTAINERS[name][0](schema)

    def put(value: Any) -> Any:
        for name in containers:
            value = CONTAINERS[name][1](value)
        return value

    def out(value: Any) -> Any:
        for name in containers:
            value = CONTAINERS[name][2](value)
        return value

    envelope = ENVELOPES[draw.choice(list(ENVELOPES))]
    values = [legal(draw) for _ in range(draw.randint(1, 4))]
    expected = [out(means(value)) for value in values]
    changes = lh.debezium_changes(
        envelope(told(schema, map(put, values))), ["id"], add_fields=["source.lsn"]
    )
    found = changes["v"].cast(plain(changes["v"].type)).to_pylist()
    if not all(map(same, found, expected)):
        raise AssertionError(f"{kind} in {containers}: {values} are {found}, not {expected}")
    if wrong is not None:
        bad = wrong(draw)
        events = envelope(told(schema, map(put, [*values, bad])))
        refused(events, rf"event {len(values)} has .* as 'v'")
    return changes, expected


def refused(events: Any, why: str) -> None:
    """Raise AssertionError where events are taken, or refused for another reason."""
    try:
        found = lh.debezium_changes(events, ["id"])
    except InvalidInputError as error:
        if not re.search(why, str(error)):
            raise AssertionError(f"{error}, and not {why}") from error
    else:
        raise AssertionError(f"taken as {found['v'].to_pylist()}, and not: {why}")


def judge_left_out(kind: str, containers: Sequence[str], *, with_schema: bool) -> list[Any]:
    """A value, and then one that was left out, inside of containers.

    Returns the events. Raises AssertionError if the placeholder is taken for a value.
    """
    schema, first, toasted = TOASTED[kind]
    for name in containers:
        shape, put, _ = CONTAINERS[name]
        schema, first, toasted = shape(schema), put(first), put(toasted)
    events: list[Any] = list(told(schema, [first, toasted]))
    if not with_schema:
        events = [one["payload"] for one in events]
    refused(events, r"event 1 leaves out the value of 'v'.*FULL")
    return events


def round_of(seed: int, *_: object) -> None:
    """Events of one type, each at a random place. Raises AssertionError."""
    draw = random.Random(seed)
    containers = draw.choices(list(CONTAINERS), k=draw.randint(0, 2))
    if draw.random() < 0.7:
        judge_values(draw, draw.choice(list(TYPES)), containers)
    else:
        # JSON without a schema has no keys but text
        with_schema = draw.random() < 0.5 or "map by number" in containers
        judge_left_out(draw.choice(list(TOASTED)), containers, with_schema=with_schema)


_TYPES = "row_changes.change_data.connect_types:connect_type"
_LEFT_OUT = "row_changes.change_data.unchanged_values:_placeholders"
MUTANTS = [
    Mutant(
        "9: times of day are modulo 24 hours",
        _TYPES,
        "return _LOGICAL[name]",
        "found, of = _LOGICAL[name], name.rpartition('.')[2]\n"
        "        day = 86_400 * {'MicroTime': 10**6, 'NanoTime': 10**9}.get(of, 1000)\n"
        "        return ConnectType(found.arrow, lambda it: found.convert(it % day))"
        " if of.endswith('Time') else found",
    ),
    Mutant(
        "9: whole numbers have no range",
        _TYPES,
        "return _PLAIN[kind]",
        "return ConnectType(pa.int32(), int) if kind == 'int8' else _PLAIN[kind]",
    ),
    Mutant(
        "9: NaN and Infinity in quotes are no numbers",
        _TYPES,
        "return _PLAIN[kind]",
        "return ConnectType(pa.float64(), lambda it: it + 0.0) if kind == 'double'"
        " else _PLAIN[kind]",
    ),
    Mutant(
        "9: values that were left out are looked for at one depth only",
        _LEFT_OUT,
        "if pa.types.is_struct(kind):",
        "if pa.types.is_nested(kind):\n        return np.zeros(len(array), bool)\n    if False:",
    ),
    Mutant(
        "9: arrays of numbers that were left out overwrite",
        _LEFT_OUT,
        " | _byte_lists(items, lengths)",
        "",
    ),
]
