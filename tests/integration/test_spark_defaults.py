"""Every type with a default, and types that Spark lacks: read, inserted, updated and merged."""

from __future__ import annotations

import datetime as dt
import struct
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakehouse.spec.types.variant_values import decode_variant
from tests.integration.spark_support import lake, session, sql

__all__ = ["lake", "session", "sql"]

pytestmark = pytest.mark.spark

UUID = uuid.UUID(int=7)
MODES = ["copy-on-write", "merge-on-read"]


@dataclass(frozen=True)
class Case:
    """A column with a default.

    Attributes:
        default: as it is given to `add_column`.
        shown: the default as Spark's rows have it.
        other: another value, as Spark SQL.
        other_shown: the same as rows have it.
        stored: the default as our own reader gives it, where it is not `shown`.
    """

    default: Any
    shown: Any
    other: str
    other_shown: Any
    stored: Any = None


NOON = dt.datetime(2026, 1, 31, 12)  # noqa: DTZ001
NANOS = "2026-01-31 12:00:00.123456789"
CASES = {
    "boolean": Case(True, True, "false", False),
    "int": Case(5, 5, "6", 6),
    "long": Case(5, 5, "6", 6),
    "float": Case(1.5, 1.5, "2.5", 2.5),
    "double": Case(1.5, 1.5, "2.5", 2.5),
    "decimal(9, 2)": Case(Decimal("1.20"), Decimal("1.20"), "3.40", Decimal("3.40")),
    "date": Case(
        dt.date(2026, 1, 31), dt.date(2026, 1, 31), "DATE '1999-01-01'", dt.date(1999, 1, 1)
    ),
    "time": Case(dt.time(1, 2, 3), dt.time(1, 2, 3), "TIME '04:05:06'", dt.time(4, 5, 6)),
    "timestamp": Case(NOON, NOON, "TIMESTAMP_NTZ '1999-01-01'", dt.datetime(1999, 1, 1)),  # noqa: DTZ001
    "string": Case("it's", "it's", "'other'", "other"),
    "binary": Case(b"ab", b"ab", "X'00'", b"\0"),
    "fixed[2]": Case(b"ab", b"ab", "X'0001'", b"\0\1"),
    "uuid": Case(UUID, str(UUID), f"'{uuid.UUID(int=8)}'", str(uuid.UUID(int=8)), stored=UUID),
    "timestamp_ns": Case(
        NANOS, NANOS, "'1999-01-01 00:00:00.000000001'", "1999-01-01 00:00:00.000000001"
    ),
    "timestamptz_ns": Case(
        NANOS + "+00:00",
        NANOS + "Z",
        "'1999-01-01 01:00:00.5+01:00'",
        "1999-01-01 00:00:00.500000000Z",
    ),
    "struct<x: int>": Case({}, (None,), "named_struct('x', 3)", (3,)),
    "struct<x: uuid, y: struct<z: timestamp_ns>>": Case(
        {},
        (None, None),
        f"named_struct('x', '{UUID}', 'y', named_struct('z', '{NANOS}'))",
        (str(UUID), (NANOS,)),
    ),
}


@pytest.fixture
def table(lake):
    def make(kind, default, mode="copy-on-write"):
        properties = {"format-version": "3"} | {
            f"write.{command}.mode": mode for command in ("update", "merge", "delete")
        }
        lake.create_namespace("d")
        table = lake.create_table("d.t", pa.schema({"i": pa.int64()}), properties=properties)
        table.append(pa.table({"i": [1, 2, 3]}))
        with table.update_schema() as update:
            update.add_column("g", kind, default=default)
        return table

    return make


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", CASES)
def test_rows_older_than_a_default_are_read_and_changed(table, lake, spark, sql, kind, mode):
    case = CASES[kind]
    table(kind, case.default, mode)
    default, other = case.shown, case.other_shown
    assert sorted(sql("SELECT * FROM lake.d.t")) == [(1, default), (2, default), (3, default)]
    assert sorted(sql("SELECT i FROM lake.d.t WHERE g IS NOT NULL")) == [(1,), (2,), (3,)]
    assert sql(f"SELECT count(*), count(g) FROM lake.d.t WHERE g = {case.other}") == [(0, 0)]
    sql("INSERT INTO lake.d.t (i) VALUES (4)")
    sql(f"INSERT INTO lake.d.t VALUES (5, {case.other})")
    spark.range(6, 7).toDF("i").writeTo("lake.d.t").append()
    sql("UPDATE lake.d.t SET i = 10 WHERE i = 1")
    sql(f"UPDATE lake.d.t SET g = {case.other} WHERE i = 10")
    sql(
        f"MERGE INTO lake.d.t t USING (SELECT explode(array(2L, 7L)) AS i) s ON t.i = s.i "
        f"WHEN MATCHED THEN UPDATE SET i = 20 WHEN NOT MATCHED THEN INSERT (i, g) "
        f"VALUES (s.i, {case.other})"
    )
    sql("DELETE FROM lake.d.t WHERE i = 3")
    expected = [(4, default), (5, other), (6, default), (7, other), (10, other), (20, default)]
    assert sorted(sql("SELECT * FROM lake.d.t")) == expected
    assert (
        sorted(sql(f"SELECT i FROM lake.d.t WHERE g = {case.other}"))
        == sorted((i,) for i, g in expected if g == other)
        or "+01:00" in case.other
    )
    rows = lake.load_table("d.t").scan().to_arrow().sort_by("i").to_pylist()
    assert len({str(row["g"]) for row in rows}) == 2
    assert rows[0]["g"] == rows[2]["g"] == rows[5]["g"]
    if case.stored is not None:
        assert rows[0]["g"] == case.stored


@pytest.mark.parametrize("mode", MODES)
def test_defaults_of_fields_inside_a_column(lake, sql, mode):
    kinds = ["int", "binary", "uuid", "timestamp_ns"]
    properties = {"format-version": "3"} | {
        f"write.{command}.mode": mode for command in ("update", "merge", "delete")
    }
    lake.create_namespace("d")
    inside = pa.struct([("a", pa.int64())])
    columns = {"s": inside, "l": pa.list_(inside), "m": pa.map_(pa.string(), inside)}
    table = lake.create_table("d.t", pa.schema({"i": pa.int64(), **columns}), properties=properties)
    given = {"s": {"a": 1}, "l": [{"a": 1}, None], "m": [("k", {"a": 1})]}
    table.append(
        pa.Table.from_pylist([{"i": 1, **given}, {"i": 2}], schema=table.scan().to_arrow().schema)
    )
    defaults = [CASES[kind] for kind in kinds]
    with table.update_schema() as update:
        for path in (("s",), ("l", "element"), ("m", "value")):
            for kind, case in zip(kinds, defaults, strict=True):
                update.add_column((*path, f"c_{kind}"), kind, default=case.default)
    whole = (1, *(case.shown for case in defaults))
    old = (1, whole, [whole, None], {"k": whole})
    assert sorted(sql("SELECT * FROM lake.d.t")) == [old, (2, None, None, None)]
    assert sql("SELECT i, s.c_int, l[0].c_uuid, m['k'].c_binary FROM lake.d.t WHERE i = 1") == [
        (1, 5, str(UUID), b"ab")
    ]
    sql("UPDATE lake.d.t SET i = 10 WHERE i = 1")
    sql("INSERT INTO lake.d.t SELECT i + 1, s, l, m FROM lake.d.t WHERE i = 10")
    sql("MERGE INTO lake.d.t t USING (SELECT 2L AS i) s ON t.i = s.i WHEN MATCHED THEN DELETE")
    assert sorted(sql("SELECT * FROM lake.d.t")) == [(10, *old[1:]), (11, *old[1:])]


HOLDERS = {
    "plain": ("{kind}", "{value}", lambda value: value),
    "list": ("list<{kind}>", "array({value}, null)", lambda value: [value, None]),
    "key": ("map<{kind}, int>", "map({value}, 1)", lambda value: {value: 1}),
    "value": ("map<string, {kind}>", "map('k', {value})", lambda value: {"k": value}),
    "deep": (
        "struct<l: list<struct<x: {kind}>>>",
        "named_struct('l', array(named_struct('x', {value}), null))",
        lambda value: ([(value,), None],),
    ),
}
FOREIGN = ("uuid", "timestamp_ns", "timestamptz_ns")


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("mode", MODES)
def test_uuids_and_nanoseconds_at_any_depth(table, lake, sql, kind, holder, mode):
    text, literal, shown = HOLDERS[holder]
    before = table(text.format(kind=kind), None, mode)
    value, expected = f"'{CASES[kind].shown}'", shown(CASES[kind].shown)
    sql(f"INSERT INTO lake.d.t VALUES (4, {literal.format(value=value)})")
    sql(f"UPDATE lake.d.t SET g = {literal.format(value=value)} WHERE i = 1")
    sql("UPDATE lake.d.t SET i = 20 WHERE i = 2")
    sql("DELETE FROM lake.d.t WHERE i = 3")
    assert sorted(sql("SELECT * FROM lake.d.t")) == [(1, expected), (4, expected), (20, None)]
    assert sorted(sql("SELECT i FROM lake.d.t")) == [(1,), (4,), (20,)]
    assert sql("SELECT count(*), count(g) FROM lake.d.t") == [(3, 2)]
    rows = before.refresh().scan().to_arrow().sort_by("i").to_pylist()
    assert rows[0]["g"] == rows[1]["g"] != rows[2]["g"]
    sql(
        "CALL lake.system.rewrite_data_files(table => 'd.t', options => map('rewrite-all', 'true'))"
    )
    assert sorted(sql("SELECT * FROM lake.d.t")) == [(1, expected), (4, expected), (20, None)]


@pytest.mark.parametrize("by", ["g", "day(g)", "bucket(4, g)"])
@pytest.mark.parametrize("kind", ["timestamp_ns", "timestamptz_ns"])
def test_partitions_by_nanoseconds(lake, sql, kind, by):
    zone = "UTC" if "tz" in kind else None
    lake.create_namespace("d")
    schema = pa.schema({"i": pa.int64(), "g": pa.timestamp("ns", zone)})
    table = lake.create_table("d.t", schema, partition_by=[by], properties={"format-version": "3"})
    table.append(pa.table({"i": [1], "g": pa.array([-1], schema.field("g").type)}))
    suffix = "Z" if zone else ""
    sql(f"INSERT INTO lake.d.t VALUES (2, '2026-01-31 12:00:00.123456789{suffix}'), (3, NULL)")
    sql("UPDATE lake.d.t SET i = 10 WHERE i = 1")
    assert sorted(sql("SELECT * FROM lake.d.t")) == [
        (2, NANOS + suffix),
        (3, None),
        (10, "1969-12-31 23:59:59.999999999" + suffix),
    ]
    assert table.refresh().scan(where="i = 10").to_arrow()["g"].cast(pa.int64()).to_pylist() == [-1]
    assert sql("SELECT i FROM lake.d.t WHERE g > '2026-01-31'") == [(2,)]
    assert sql("SELECT i FROM lake.d.t WHERE to_timestamp(g) < TIMESTAMP '1971-01-01'") == [(10,)]
    assert len(sql("SELECT _partition FROM lake.d.t WHERE i > 0")) == 3
    assert len(sql("SELECT * FROM lake.d.t.files")) == 3
    assert len(sql("SELECT * FROM lake.d.t.partitions")) == (2 if by.startswith("bucket") else 3)
    sql("INSERT OVERWRITE lake.d.t SELECT * FROM lake.d.t WHERE i = 2")
    assert sql("SELECT * FROM lake.d.t") == [(2, NANOS + suffix)]


def test_text_that_is_no_time_is_refused(table, sql):
    table("timestamptz_ns", None)
    for text in ("2026-01-31 12:00:00", "noon", "2300-01-01 00:00:00Z"):
        with pytest.raises(Exception, match=r"column 'g' of table d\.t.*Write nanoseconds as"):
            sql(f"INSERT INTO lake.d.t VALUES (4, '{text}')")
    assert sql("SELECT count(*) FROM lake.d.t") == [(3,)]


@pytest.mark.parametrize("mode", MODES)
def test_variants_are_written_changed_and_read_by_sql(lake, sql, mode):
    modes = ", ".join(f"'write.{one}.mode' = '{mode}'" for one in ("update", "merge", "delete"))
    sql("CREATE NAMESPACE lake.d")
    sql(
        "CREATE TABLE lake.d.t (i BIGINT, v VARIANT, s STRUCT<v: VARIANT>) "
        f"TBLPROPERTIES ('format-version' = '3', {modes})"
    )
    sql(
        """INSERT INTO lake.d.t VALUES
        (1, parse_json('{"a": 1, "b": [1.5, null, "x"]}'), named_struct('v', parse_json('true'))),
        (2, NULL, NULL), (3, to_variant_object(named_struct('d', DATE '2026-01-31')), NULL)"""
    )
    sql("""UPDATE lake.d.t SET v = parse_json('"new"') WHERE i = 2""")
    sql("UPDATE lake.d.t SET i = 10 WHERE i = 1")
    sql(
        """MERGE INTO lake.d.t t USING (SELECT 3L AS i UNION ALL SELECT 4L) s ON t.i = s.i
        WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (i, v) VALUES (4, parse_json('{}'))"""
    )
    table = lake.load_table("d.t")
    rows = table.scan().to_arrow().sort_by("i").to_pylist()
    assert [row["v"] and decode_variant(**row["v"]) for row in rows] == [
        "new",
        {},
        {"a": 1, "b": [Decimal("1.5"), None, "x"]},
    ]
    assert decode_variant(**rows[2]["s"]["v"]) is True
    table.append(pa.table({"i": [5], "v": [{"k": [1, 2]}]}))
    table.refresh().compact()
    assert sorted(sql("SELECT i, to_json(v), s IS NULL FROM lake.d.t")) == [
        (2, '"new"', True),
        (4, "{}", True),
        (5, '{"k":[1,2]}', True),
        (10, '{"a":1,"b":[1.5,null,"x"]}', False),
    ]
    assert sql("SELECT i FROM lake.d.t WHERE variant_get(v, '$.a', 'int') = 1") == [(10,)]
    assert sorted(sql("SELECT i FROM lake.d.t WHERE v IS NULL OR s IS NULL")) == [(2,), (4,), (5,)]


@pytest.mark.parametrize("kind", ["geometry", "geography(EPSG:4326, karney)", "list<geometry>"])
def test_geometries_are_bytes_to_spark(table, sql, kind):
    made = table(kind, None)
    point = "X'0101000000000000000000F03F0000000000000040'"
    value = f"array({point})" if kind.startswith("list") else point
    sql(f"INSERT INTO lake.d.t VALUES (4, {value})")
    sql(f"UPDATE lake.d.t SET g = {value} WHERE i = 1")
    sql("DELETE FROM lake.d.t WHERE i = 3")
    assert sorted(sql("SELECT i, g IS NULL FROM lake.d.t")) == [(1, False), (2, True), (4, False)]
    rows = made.refresh().scan(where="i = 4").to_arrow().to_pylist()
    found = rows[0]["g"][0] if kind.startswith("list") else rows[0]["g"]
    assert struct.unpack("<BIdd", found) == (1, 1, 1.0, 2.0)
    assert sql(f"SELECT count(*) FROM lake.d.t WHERE g = {value}") == [(2,)]
    sql("TRUNCATE TABLE lake.d.t")
    sql("ALTER TABLE lake.d.t DROP COLUMN g")
    sql("INSERT INTO lake.d.t VALUES (4)")
    assert sql("SELECT * FROM lake.d.t") == [(4,)]
