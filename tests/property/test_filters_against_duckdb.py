"""Filters as text against DuckDB: the same condition on the same rows, read and deleted by.

DuckDB computes conditions on rows, and knows nothing of files, bounds, partitions or deletes.
`LAKEHOUSE_FILTER_EXAMPLES=5000` makes it long.
"""

from __future__ import annotations

import datetime as dt
import math
import os
import uuid
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from hypothesis import example, given, reject, settings
from hypothesis import strategies as st

import lakehouse as lh
from lakehouse.errors import InvalidExpressionError, InvalidInputError
from lakehouse.expressions.filter_binding import bind
from lakehouse.expressions.filter_text import describe
from lakehouse.expressions.row_evaluation import passing
from lakehouse.spec.schema.iceberg_types import paths_of
from lakehouse.spec.types.arrow_types import column_at

EXAMPLES = int(os.environ.get("LAKEHOUSE_FILTER_EXAMPLES", "25"))
UTC = dt.UTC
ARROW = pa.schema(
    [
        ("n", pa.int64()),
        ("b", pa.bool_()),
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("f", pa.float32()),
        ("x", pa.float64()),
        ("m", pa.decimal128(9, 2)),
        ("w", pa.decimal128(38, 10)),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("t", pa.time64("us")),
        ("ts", pa.timestamp("us")),
        ("tz", pa.timestamp("us", "UTC")),
        ("ns", pa.timestamp("ns")),
        ("bin", pa.binary()),
        ("u", pa.uuid()),
        ("st", pa.struct([("x", pa.int32()), ("s", pa.string())])),
    ]
)
DAYS = [
    dt.date(1969, 12, 31),
    dt.date(1970, 1, 1),
    dt.date(2020, 2, 29),
    dt.date(2020, 3, 1),
    dt.date(2021, 12, 31),
    dt.date(1600, 2, 29),
]
TIMES = [dt.time(0, 0), dt.time(12, 30, 15, 500_000), dt.time(23, 59, 59, 999_999)]
MOMENTS = [dt.datetime.combine(day, time) for day in DAYS for time in TIMES]
TEXTS = [
    "",
    "a",
    "A",
    "ab",
    "aB",
    "abc",
    "a_c",
    "a%c",
    "a\\c",
    "axc",
    " a ",
    "b",
    "é",
    "É",
    "😀b",
    "a\nc",
    "10%",
    "'",
]
UUIDS = [
    uuid.UUID(int=0),
    uuid.UUID(int=2**127 - 1),
    uuid.UUID(int=2**127),
    uuid.UUID(int=2**128 - 1),
    uuid.UUID(int=2**63),
]
BYTES = [b"", b"a", b"ab", b"\x7f", b"\x80", b"\xff\x00"]
NANOS = 1_582_934_400_000_000_001
SINGLE = [
    -1.5,
    -0.0,
    0.0,
    float(pa.scalar(0.1, pa.float32()).as_py()),
    1.5,
    16777216.0,
    math.inf,
    -math.inf,
    math.nan,
]
VALUES = {
    "b": [True, False],
    "i": [-(2**31), -7, -1, 0, 1, 2, 3, 100, 2**31 - 1],
    "l": [-(2**63), -(2**53) - 1, -1, 0, 1, 2, 2**53 + 1, 2**63 - 1],
    "f": SINGLE,
    "x": [-1.5, -0.0, 0.0, 0.1, 1.5, 5e-324, 1e300, math.inf, -math.inf, math.nan],
    "m": [Decimal(text) for text in ("-9999999.99", "-1.50", "-0.01", "0.00", "0.05", "1.50",
    "2.50", "9999999.99")],
    "w": [Decimal(text) for text in ("-9999999999999999999999999999.9999999999", "0.0000000001",
    "0.0000000000", "1.5000000000")],
    "s": TEXTS,
    "d": DAYS,
    "t": TIMES,
    "ts": MOMENTS,
    "tz": [moment.replace(tzinfo=UTC) for moment in MOMENTS],
    "ns": [pa.scalar(nanos, pa.timestamp("ns")) for nanos in (-1, 0, 1, NANOS, 10**18)],
    "bin": BYTES,
    "u": [one.bytes for one in UUIDS],
}  # fmt: skip
ROW = st.fixed_dictionaries(
    {name: st.none() | st.sampled_from(values) for name, values in VALUES.items()}
    | {
        "st": st.none()
        | st.fixed_dictionaries(
            {"x": st.none() | st.integers(-3, 3), "s": st.none() | st.sampled_from(TEXTS)}
        )
    }
)
ROWS = st.lists(ROW, min_size=1, max_size=12)

# Terms and literals as (ours, DuckDB's)


def alike(*texts: str) -> list[tuple[str, str]]:
    return [(text, text) for text in texts]


WIDE = ("i::bigint", "st.x::bigint")
INTEGERS = [
    ("i", "i"), ("l", "l"), ("st.x", "st.x"), ("i + 3", "i::bigint + 3"), ("7 - i",
    "7 - i::bigint"), ("-i", "-(i::bigint)"),
    ("i * 2", "i::bigint * 2"), ("i + st.x", "i::bigint + st.x"), ("i // 3", "i // 3"),
    ("i div -2", "i // (-2)"), ("i % 4", "i % 4"),
    ("i % -3", "i % (-3)"), ("abs(st.x)", "abs(st.x)"), ("sign(i)", "sign(i)"), ("coalesce(i, 0)",
    "coalesce(i, 0)"),
    ("coalesce(i, st.x, 1)", "coalesce(i, st.x, 1)"), ("nullif(i, 2)", "nullif(i, 2)"),
    ("greatest(i, st.x)", "greatest(i, st.x)"),
    ("least(i, 3, st.x)", "least(i, 3, st.x)"), ("case when b then i else st.x end",
    "case when b then i else st.x end"),
    ("case st.x when 1 then 10 when 2 then i end", "case st.x when 1 then 10 when 2 then i end"),
    ("if(i > 1, i, 0)", "if(i > 1, i, 0)"),
    ("cast(i as bigint)", "cast(i as bigint)"), ("i::long", "i::bigint"), ("length(s)",
    "length(s)"),
    *alike("year(d)", "year(ts)", "year(tz)", "quarter(d)", "month(ts)", "day(d)", "week(d)",
        "dayofyear(ts)", "isodow(d)", "hour(ts)",
           "minute(tz)", "second(ts)", "extract(year from ts)", "extract(hour from tz)"),
]  # fmt: skip
NUMBERS = [
    ("m", "m"), ("w", "w"), ("m + 1", "m + 1"), ("m - 0.5", "m - 0.5"), ("m * 2", "m * 2"), ("-m",
    "-m"), ("abs(m)", "abs(m)"),
    ("round(m, 1)", "round(m, 1)"), ("floor(m)", "floor(m)"), ("ceil(m)", "ceil(m)"),
    ("cast(m as decimal(12, 3))", "cast(m as decimal(12, 3))"),
    ("coalesce(m, 0)", "coalesce(m, 0)"), ("m + i", "m + i::bigint"),
]  # fmt: skip
FLOATS = [
    ("x", "x"), ("x + 1.5", "x + 1.5"), ("x * x", "x * x"), ("abs(x)", "abs(x)"), ("i / 2",
    "i / 2"), ("x / nullif(st.x, 0)", "x / nullif(st.x, 0)"),
    ("floor(x)", "floor(x)"), ("round(x)", "round(x)"), ("cast(i as double)", "cast(i as double)"),
    ("cast(f as double)", "cast(f as double)"),
    ("greatest(x, 1.5)", "greatest(x, 1.5::double)"), ("coalesce(x, 0)", "coalesce(x, 0)"),
]  # fmt: skip
SINGLES = [("f", "f"), ("f + 1", "f + 1"), ("-f", "-f")]
STRINGS = [
    *alike("s", "st.s", "upper(s)", "lower(s)", "trim(s)", "ltrim(s)", "rtrim(s)",
        "substring(s, 1, 2)", "substring(s, 2)", "left(s, 1)",
           "right(s, 2)", "replace(s, 'a', 'xy')", "s || 'x'", "st.s || s", "coalesce(s, 'z')",
           "nullif(s, 'a')"),
    ("cast(i as string)", "cast(i as varchar)"), ("cast(d as string)", "cast(d as varchar)"),
    ("cast(u as string)", "cast(u as varchar)"),
]  # fmt: skip
DATES = [
    ("d", "d"),
    ("date(ts)", "cast(ts as date)"),
    ("cast(tz as date)", "cast(tz as date)"),
    ("date_trunc('month', d)", "date_trunc('month', d)::date"),
]
STAMPS = [
    ("ts", "ts"), ("ts + interval 5 hours", "ts + interval 5 hours"), ("ts - interval '1' day",
    "ts - interval '1' day"),
    ("d + interval 36 hours", "d + interval 36 hours"), ("cast(d as timestamp)",
    "cast(d as timestamp)"),
    *alike(*(f"date_trunc('{unit}', ts)" for unit in ("year", "quarter", "month", "week", "day",
        "hour", "minute", "second"))),
]  # fmt: skip


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


INTEGER_LITERALS = alike(
    "-2147483649",
    "-7",
    "-1",
    "0",
    "1",
    "2",
    "3",
    "10",
    "100",
    "2020",
    "2147483647",
    "3000000000",
    "9007199254740993",
    "1.5",
    "-0.5",
)
DECIMALS = alike(
    "-1.5", "0", "0.00", "0.005", "0.05", "1.5", "2.5", "2.55", "9999999.99", "100000000"
)
DOUBLES = alike("-1.5", "0", "0.1", "1.5", "1e300", "1e-90")
FLOAT_LITERALS = alike("-1.5", "0", "0.1", "1.5", "16777216", "16777217")
TEXT_LITERALS = alike(*map(quoted, [*TEXTS, "ax", "xy"]))
DAY_LITERALS = alike(*(quoted(day.isoformat()) for day in DAYS), "date '2020-03-01'")
STAMP_LITERALS = alike(
    *(quoted(moment.isoformat(" ")) for moment in MOMENTS),
    "timestamp '2020-02-29 00:00:00'",
    "timestamp '2020-02-01 00:00:00'",
    "timestamp '1969-12-29 00:00:00'",
)
KINDS = [
    (INTEGERS, INTEGER_LITERALS),
    (NUMBERS, DECIMALS),
    (FLOATS, DOUBLES),
    (SINGLES, FLOAT_LITERALS),
    (STRINGS, TEXT_LITERALS),
    (DATES, DAY_LITERALS),
    (STAMPS, STAMP_LITERALS),
    (alike("tz"), alike(*(quoted(moment.isoformat(" ") + "+00:00") for moment in MOMENTS),
        "timestamptz '2020-02-29 14:30:15.5+02:00'")),
    (alike("t"), alike(*(quoted(one.isoformat()) for one in TIMES), "time '12:30:15.5'")),
    (alike("ns"), [("'2020-02-29T00:00:00.000000001'",
        "'2020-02-29 00:00:00.000000001'::timestamp_ns"), ("'1970-01-01'",
        "'1970-01-01'::timestamp_ns")]),
    (alike("u"), alike(*(quoted(str(one)) for one in UUIDS))),
    (alike("bin"), [(f"X'{one.hex()}'",
        "'" + "".join(f"\\x{byte:02x}" for byte in one) + "'::blob") for one in BYTES]),
    (alike("b", "b and i > 1", "i = 1"), alike("true", "false")),
]  # fmt: skip
OPERATORS = ["=", "!=", "<>", "<", "<=", ">", ">=", "is distinct from", "is not distinct from"]
PATTERNS = [
    "a%",
    "%c",
    "a_c",
    "_",
    "",
    "%",
    "a%c",
    "%b%",
    "A%",
    "a!%c",
    "10!%",
    "a!_c",
    "é",
    "a\\c",
    "%\\c",
]


@st.composite
def predicates(draw: st.DrawFn, depth: int = 2) -> tuple[str, str]:
    shape = draw(st.sampled_from(["leaf"] * 4 + (["and", "or", "not", "case"] if depth else [])))
    if shape == "not":
        one = draw(predicates(depth - 1))
        return f"not ({one[0]})", f"not ({one[1]})"
    if shape in ("and", "or"):
        one, two = draw(predicates(depth - 1)), draw(predicates(depth - 1))
        return f"({one[0]}) {shape} ({two[0]})", f"({one[1]}) {shape} ({two[1]})"
    if shape == "case":
        one, two, three = (draw(predicates(depth - 1)) for _ in range(3))
        return tuple(
            f"case when {a} then {b} else {c} end" for a, b, c in zip(one, two, three, strict=True)
        )
    return draw(leaves())


@st.composite
def leaves(draw: st.DrawFn) -> tuple[str, str]:
    terms, literals = draw(st.sampled_from(KINDS))
    term = draw(st.sampled_from(terms))
    literal = st.sampled_from(literals)
    shapes = ["compare", "compare", "flipped", "null", "in", "between", "other"]
    shapes += ["like", "prefix"] if terms is STRINGS else []
    shape = draw(st.sampled_from(shapes))
    if shape == "null":
        test = draw(st.sampled_from(["is null", "is not null"]))
        return f"({term[0]}) {test}", f"({term[1]}) {test}"
    if shape == "in":
        listed = draw(st.lists(literal, min_size=1, max_size=3)) + (
            [("null", "null")] if draw(st.integers(0, 5)) == 0 else []
        )
        word = draw(st.sampled_from(["in", "not in"]))
        return tuple(
            f"({term[side]}) {word} ({', '.join(one[side] for one in listed)})" for side in (0, 1)
        )
    if shape == "between":
        low, high = draw(literal), draw(literal)
        word = draw(st.sampled_from(["between", "not between"]))
        return tuple(f"({term[side]}) {word} {low[side]} and {high[side]}" for side in (0, 1))
    if shape == "like":
        pattern, word = (
            draw(st.sampled_from(PATTERNS)),
            draw(st.sampled_from(["like", "not like", "ilike"])),
        )
        escape = " escape '!'" if "!" in pattern else ""
        return tuple(f"({term[side]}) {word} {quoted(pattern)}{escape}" for side in (0, 1))
    if shape == "prefix":
        name = draw(st.sampled_from(["starts_with", "contains", "ends_with"]))
        text = quoted(draw(st.sampled_from(["a", "ab", "c", "%"])))
        return tuple(f"{name}({term[side]}, {text})" for side in (0, 1))
    op, other = draw(st.sampled_from(OPERATORS)), draw(literal)
    if shape == "other":
        other = draw(st.sampled_from(terms))
    sides = (other, term) if shape == "flipped" else (term, other)
    return tuple(f"({sides[0][side]}) {op} ({sides[1][side]})" for side in (0, 1))


def table_of(rows: list[dict]) -> pa.Table:
    return pa.Table.from_pylist([{"n": n, **row} for n, row in enumerate(rows)], schema=ARROW)


@pytest.fixture(scope="module")
def oracle():
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    connection.sql("set TimeZone = 'UTC'")
    # its optimizer takes date_trunc of a column of nulls for true beside != (1.5.5)
    connection.sql("pragma disable_optimizer")

    def ask(rows: pa.Table, condition: str) -> list[int]:
        connection.register("given", rows)
        connection.execute("create or replace temp table t as select * from given")
        return [
            row[0]
            for row in connection.execute(
                f"select n from t where {condition} order by n"
            ).fetchall()
        ]

    yield ask
    connection.close()


CATALOG = lh.load_catalog(f"memory://filters-{uuid.uuid4().hex}/warehouse")
SCHEMA = CATALOG.create_table("t.schema", ARROW, format_version=3).schema()


NULLS = dict.fromkeys(VALUES) | {"st": None}


@settings(max_examples=EXAMPLES * 10)
@example(rows=[NULLS | {"f": math.nan}], predicate=("-f > -1.5", "-f > -1.5"))
@example(rows=[NULLS | {"x": math.nan}], predicate=("-x < 1.5", "-x < 1.5"))
@example(rows=[NULLS], predicate=("year(ts) > -1", "year(ts) > -1"))
@example(
    rows=[NULLS | {"bin": b""}],
    predicate=("i = 0 or bin = X'61'", "i = 0 or bin = '\\x61'::blob"),
)
@given(rows=ROWS, predicate=predicates())
def test_rows(oracle, rows, predicate):
    ours, duck = predicate
    table = table_of(rows)
    where = bind(ours, SCHEMA)
    paths = paths_of(SCHEMA)

    def read(field_id: int) -> pa.ChunkedArray:
        return column_at(table, paths[field_id])

    found = passing(where, read, len(rows))
    assert [n for n, keep in enumerate(found.tolist()) if keep] == oracle(table, duck), (
        ours,
        describe(where),
    )
    # what is shown means the same
    again = passing(bind(describe(where), SCHEMA), read, len(rows))
    assert again.tolist() == found.tolist(), describe(where)


PARTITIONS = [
    [], ["i"], ["bucket(2, s)"], ["truncate(1, s)"], ["day(ts)"], ["month(tz)", "b"], ["year(d)"],
    ["truncate(2, m)"], ["bin"], ["hour(ns)"], ["u"], ["bucket(3, u)"], ["f"], ["x"], ["w"],
    ["truncate(3, w)"], ["truncate(10, l)", "t"], ["truncate(1, bin)"], ["day(d)", "year(tz)"],
    ["st.x"],
    ["s", "ns"], ["bucket(2, m)"],
]  # fmt: skip


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(
    rows=ROWS,
    more=ROWS,
    predicate=predicates(),
    partition_by=st.sampled_from(PARTITIONS),
    mode=st.sampled_from(["copy-on-write", "merge-on-read"]),
    verb=st.sampled_from(["delete", "overwrite"]),
)
def test_changes(oracle, rows, more, predicate, partition_by, mode, verb):
    ours, duck = predicate
    properties = {"write.delete.mode": mode, "write.parquet.row-group-limit": "3"}
    table = CATALOG.create_table(
        f"t.x{uuid.uuid4().hex}",
        ARROW,
        partition_by=partition_by,
        properties=properties,
        format_version=3,
    )
    whole = table_of(rows + more)
    try:
        table.append(whole.slice(0, len(rows)))
        table.append(whole.slice(len(rows)))
    except InvalidInputError as error:  # a truncated extreme has no place in its type
        if "lies outside its result type" not in str(error):
            raise
        reject()
    gone = oracle(whole, duck)
    read = table.scan(where=ours, select=["n"])
    assert sorted(read.to_arrow()["n"].to_pylist()) == gone
    assert read.count() == len(gone)
    left = [n for n in range(whole.num_rows) if n not in gone]
    if verb == "delete":
        table.delete(ours)
    else:
        new = table_of([dict.fromkeys(VALUES) | {"st": None}]).set_column(0, "n", pa.array([-1]))
        table.overwrite(new, where=ours)
        left = [-1, *left]
    assert sorted(table.scan().to_arrow()["n"].to_pylist()) == left
    CATALOG.drop_table(table.name, purge=True)


def test_what_cannot_be_computed_is_a_typed_error_and_changes_nothing():
    table = CATALOG.create_table("t.overflow", ARROW, format_version=3)
    table.append(table_of([dict.fromkeys(VALUES) | {"st": None, "l": 2**63 - 1, "s": "x"}]))
    for where in ("l * 2 > 1", "cast(s as int) = 1", "l + l > 0"):
        with pytest.raises(InvalidExpressionError, match="cannot compute"):
            table.scan(where=where).to_arrow()
        with pytest.raises(InvalidExpressionError, match="cannot compute"):
            table.delete(where)
    assert table.scan(where="try_cast(s as int) is null and l + 1 > 0").count() == 1
