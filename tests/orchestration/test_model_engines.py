"""The same tables from every engine: rows, types and lineage, beside what Spark gives."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812

from assets.flights import tables as flights
from lakehouse.errors import InvalidInputError, NoSuchFileError
from lakehouse.lake import Lakehouse, load_catalog
from lakehouse.orchestration import (
    DerivedTable,
    Pipeline,
    SqlModel,
    Suite,
    expect,
)
from lakehouse.orchestration.assets.frames import ENGINES, InputRows, open_engine
from lakehouse.orchestration.checks.expectations import validate
from lakehouse.orchestration.lineage.replay import replayed
from lakehouse.orchestration.lineage.trace import Lineage, Replay, read_lineage
from tests.orchestration.conftest import materialized

OTHERS = tuple(name for name in ENGINES if name != "spark")
UTC = dt.UTC


def _at(day: int, hour: int, minute: int = 0, micro: int = 0) -> dt.datetime:
    return dt.datetime(2013, 1, day, hour, minute, 0, micro, tzinfo=UTC)


def _flights() -> pa.Table:
    """Flights of three days, with nulls and white space where the feed has them."""
    rows = []
    for number in range(300):
        delay = None if number % 11 == 0 else number % 37 - 9
        rows.append(
            {
                "event_ts": _at(1 + number % 3, number % 24, number % 60),
                "dep_time": None if number % 11 == 0 else 500 + number,
                "air_time": None if number % 7 == 0 else number,
                "dep_delay": delay,
                "arr_delay": None if delay is None else delay + 3,
                "carrier": ("UA", "AA", "B6", "9E")[number % 4],
                "flight": number,
                "tailnum": (None, "", "  ", f"N{number % 13} ", f" N{number % 5}\t")[number % 5],
                "origin": ("EWR", "JFK", "LGA")[number % 3],
                "dest": "IAH",
                "distance": 200 + number,
            }
        )
    kinds = dict.fromkeys(
        ("dep_time", "air_time", "dep_delay", "arr_delay", "flight", "distance"), pa.int32()
    )
    kinds |= dict.fromkeys(("carrier", "tailnum", "origin", "dest"), pa.string())
    schema = [pa.field("event_ts", pa.timestamp("us", "UTC"))]
    return pa.Table.from_pylist(rows, pa.schema([*schema, *kinds.items()]))


@pytest.fixture
def lake(tmp_path: Path) -> Lakehouse:
    made = load_catalog(str(tmp_path / "warehouse"))
    rows = _flights()
    table = made.create_table("raw.flights", rows.schema, partition_by=("day(event_ts)",))
    table.append(rows)
    return made


def _rows(found: object) -> tuple[pa.Schema, list[tuple[object, ...]]]:
    """Types and rows, sorted; Spark's in the types that a table has."""
    table = found.read_all() if isinstance(found, pa.RecordBatchReader) else found.toArrow()
    table = table.select(sorted(table.column_names))
    rows = [tuple(row.values()) for row in table.to_pylist()]
    return {one.name: one.type for one in table.schema}, sorted(rows, key=repr)


def _computed(lake: Lakehouse, spark: object, table: DerivedTable, days: object = None) -> object:
    inputs = {name: lake.load_table(name).metadata.current_snapshot_id for name in table.inputs}
    session = spark if table.engine == "spark" else None
    return _rows(table.compute(lake, session, inputs, days))


def _by_frames(inputs: dict[str, object]) -> dict[str, Callable[[], object]]:
    """The demo's tables as a program of PySpark says them, without SQL."""
    raw = inputs.get("raw.flights")
    clean = inputs.get("clean.flights")
    status = (
        F.when(F.col("dep_time").isNull(), "cancelled")
        .when(F.col("air_time").isNull(), "diverted")
        .otherwise("flown")
    )
    late = F.col("departure_delay_minutes") > 15
    return {
        "clean.flights": lambda: raw.select(
            "event_ts",
            F.expr("event_ts + make_dt_interval(0, 0, dep_delay)").alias("departed_at"),
            status.alias("status"),
            "carrier",
            "flight",
            F.nullif(F.trim("tailnum"), F.lit("")).alias("tailnum"),
            "origin",
            "dest",
            F.col("dep_delay").alias("departure_delay_minutes"),
            F.col("arr_delay").alias("arrival_delay_minutes"),
            F.col("air_time").alias("air_minutes"),
            F.col("distance").alias("distance_miles"),
        ),
        "marts.carrier_day": lambda: clean.groupBy(
            F.to_date("event_ts").alias("day"), "carrier", "origin"
        ).agg(
            F.count("*").alias("flights"),
            F.count_if(F.col("status") == "cancelled").alias("cancelled"),
            F.count_if(late).alias("late"),
            F.avg("departure_delay_minutes").alias("departure_delay_avg_minutes"),
            F.sum("distance_miles").alias("distance_miles"),
        ),
        "marts.aircraft": lambda: (
            clean.where("tailnum is not null")
            .groupBy("tailnum")
            .agg(
                F.count("*").alias("flights"),
                F.count_if(F.col("status") == "flown").alias("flown"),
                F.min("event_ts").alias("first_seen"),
                F.max("event_ts").alias("last_seen"),
                F.concat_ws(",", F.array_sort(F.collect_set("carrier"))).alias("carriers"),
                F.sum(F.when(F.col("status") == "flown", F.col("distance_miles"))).alias(
                    "flown_miles"
                ),
                F.sum("air_minutes").alias("air_minutes"),
            )
        ),
    }


@pytest.mark.spark
def test_each_model_of_the_demo_gives_the_same_on_every_engine(lake: Lakehouse, spark) -> None:
    for model in (flights.CLEAN_FLIGHTS, flights.CARRIER_DAYS, flights.AIRCRAFTS):
        name = model.name
        read = {one: lake.load_table(one).scan().to_spark(spark) for one in model.table().inputs}
        wanted = _rows(_by_frames(read)[name]())
        assert len(wanted[1]) > 5
        for engine in ENGINES:
            table = replace(model, engine=engine).table()
            assert _computed(lake, spark, table) == wanted, (name, engine)
        if name == "clean.flights":
            rows = (
                replace(model, engine="duckdb")
                .table()
                .compute(
                    lake,
                    None,
                    {"raw.flights": lake.load_table("raw.flights").metadata.current_snapshot_id},
                    None,
                )
                .read_all()
            )
            lake.create_table(name, rows.schema).append(rows)


TYPED = pa.table(
    {
        "k": pa.array([1, 1, 2, 2, 3, None], pa.int32()),
        "i": pa.array([2**31 - 1, 2**31 - 1, None, -5, 7, 0], pa.int32()),
        "l": pa.array([2**40, 1, 2, 3, None, 5], pa.int64()),
        "d": pa.array(
            [
                Decimal(x) if x else None
                for x in ("1.10", "99999999.99", None, "-0.01", "0.00", "5")
            ],
            pa.decimal128(10, 2),
        ),
        "f": pa.array([0.5, 0.25, None, -1.5, 1e300, 0.0], pa.float64()),
        "at": pa.array(
            [_at(1, 23, 59, 999999), _at(2, 0), None, _at(3, 5), _at(1, 0), _at(1, 0)],
            pa.timestamp("us", "UTC"),
        ),
        "wall": pa.array([dt.datetime(2013, 1, 1, 1)] * 5 + [None], pa.timestamp("us")),  # noqa: DTZ001
        "day": pa.array([date(2013, 1, 1)] * 3 + [None] * 3, pa.date32()),
        "s": pa.array(["a", " a ", "", None, "é\t ", "Ab"]),
        "b": pa.array([True, False, None, True, True, None]),
    }
)
QUERIES = {
    "as they are": "SELECT * FROM raw.typed",
    "sums and least values": (
        "SELECT k, sum(i) AS si, sum(l) AS sl, sum(d) AS sd, sum(f) AS sf, avg(i) AS ai, "
        "avg(f) AS af, min(d) AS md, max(at) AS xa, min(wall) AS mw, max(s) AS xs, "
        "count(d) AS cd, count(*) AS c, count(DISTINCT s) AS cs "
        "FROM raw.typed GROUP BY k HAVING count(*) > 0"
    ),
    "of nothing": "SELECT count_if(b) AS c, sum(i) AS i, sum(d) AS d FROM raw.typed WHERE k > 9",
    "nulls": (
        "SELECT b AND k > 1 AS a, b OR k IS NULL AS o, NOT b AS n, coalesce(i, l) AS c, "
        "nullif(k, 1) AS f, i IN (7, 0) AS x, l BETWEEN 2 AND 5 AS w, CASE WHEN b THEN d END AS e, "
        "if(b, k, l) AS g, s = '' AS q FROM raw.typed"
    ),
    "texts": "SELECT trim(s) AS t, s || 'x' AS c, CAST(k AS STRING) AS n FROM raw.typed",
    "times": (
        "SELECT to_date(at) AS d, timestampadd(HOUR, k, at) AS h, timestampadd(DAY, 1, at) AS n, "
        "CAST(at AS DATE) AS c, day < DATE '2014-01-01' AS y FROM raw.typed"
    ),
    "arithmetic": (
        "SELECT k + 1 AS p, l * 2 AS m, f - 0.25D AS s, -k AS n, abs(k - 2) AS a, "
        "CAST(k AS DECIMAL(12, 2)) AS d, CAST(d AS DOUBLE) AS f, CAST(d AS DECIMAL(14, 4)) AS w, "
        "CAST(k AS BIGINT) AS l FROM raw.typed"
    ),
    "joins": (
        "WITH big AS (SELECT k, max(l) AS most FROM raw.typed GROUP BY k) "
        "SELECT t.k, t.s, big.most, other.d FROM raw.typed t JOIN big ON t.k = big.k "
        "LEFT JOIN raw.typed AS other ON other.l = big.most AND other.k = t.k"
    ),
    "unions": "SELECT k, s FROM raw.typed UNION ALL SELECT k, s FROM raw.typed WHERE k = 1",
    "lists": (
        "SELECT k, listagg(DISTINCT s, ',') WITHIN GROUP (ORDER BY s) AS l "
        "FROM raw.typed GROUP BY k"
    ),
    "functions of text": (
        "SELECT s LIKE 'a%' AS a, s NOT LIKE '%b_' AS b, length(s) AS c, concat(s, 'x', s) AS d, "
        "substring(s, 2, 3) AS e, left(s, 2) AS f, right(s, 1) AS g, replace(s, 'a', 'xx') AS h, "
        "startswith(s, 'a') AS i, endswith(s, ' ') AS j, nvl2(s, k, i) AS n FROM raw.typed"
    ),
    "functions of numbers and times": (
        "SELECT floor(f) AS a, ceil(f) AS b, greatest(k, l) AS c, least(i, k) AS d, k & 3 AS e, "
        "year(at) AS f, month(day) AS g, day(at) AS h, hour(at) AS i, minute(at) AS j, "
        "quarter(day) AS l, extract(YEAR FROM day) AS m, at + INTERVAL 1 HOUR AS n, "
        "s <=> 'a' AS o, CAST(b AS INT) AS p, CAST(b AS STRING) AS q FROM raw.typed "
        "WHERE f < 1000 OR f IS NULL"
    ),
    "windows": (
        "SELECT k, sum(i) OVER (PARTITION BY k) AS a, count(*) OVER (PARTITION BY k) AS b, "
        "count_if(b) OVER (PARTITION BY k) AS c, max(l) OVER (PARTITION BY k) AS d FROM raw.typed"
    ),
    "sums of what is distinct": "SELECT k, sum(DISTINCT i) AS a FROM raw.typed GROUP BY k",
    "distinct": "SELECT DISTINCT k > 1 AS p, b FROM raw.typed",
    "Names of Mixed case": "SELECT k AS UserId, `Odd name` AS `Other name` FROM raw.mixed",
}


@pytest.mark.spark
@pytest.mark.parametrize("query", QUERIES)
def test_translated_sql_has_sparks_rows_and_types(query: str, tmp_path: Path, spark) -> None:
    lake = load_catalog(str(tmp_path / "warehouse"))
    lake.create_table("raw.typed", TYPED.schema).append(TYPED)
    mixed = pa.table({"k": [1, 2], "Odd name": ["a", None]})
    lake.create_table("raw.mixed", mixed.schema).append(mixed)
    model = SqlModel(name="marts.x", sql=QUERIES[query])
    wanted = _computed(lake, spark, model.table())
    assert wanted[1]
    for engine in OTHERS:
        assert _computed(lake, spark, replace(model, engine=engine).table()) == wanted, engine


NOT_FOR_ALL = {
    "SELECT at > TIMESTAMP '2013-01-01 12:00:00.5' AS l FROM raw.typed": "polars",
    "SELECT k, l, n FROM (SELECT k, l, row_number() OVER (PARTITION BY k ORDER BY l DESC) AS n "
    "FROM raw.typed) AS numbered WHERE n = 1": "polars",
    "SELECT k, rank() OVER (PARTITION BY k ORDER BY l) AS a, lag(l) OVER (PARTITION BY k ORDER BY "
    "l) AS b, lead(l) OVER (PARTITION BY k ORDER BY l DESC) AS c, sum(i) OVER (PARTITION BY k "
    "ORDER BY l) AS d, dense_rank() OVER (ORDER BY k) AS e FROM raw.typed": "polars",
    "SELECT date_trunc('WEEK', at) AS a, datediff(at, day) AS b, last_day(day) AS c, "
    "contains(s, 'a') AS d, instr(s, 'b') AS e FROM raw.typed": "polars",
    "SELECT k, bool_and(b) AS a, bool_or(b) AS o FROM raw.typed GROUP BY k": "polars",
    "SELECT upper(s || 'ß ŉ') AS u, lower(s || 'ΑΣ İI') AS l FROM raw.typed": "duckdb",
}


@pytest.mark.spark
@pytest.mark.parametrize("query", NOT_FOR_ALL)
def test_what_one_engine_does_otherwise_the_others_do_as_spark(
    query: str, tmp_path: Path, spark
) -> None:
    lake = load_catalog(str(tmp_path / "warehouse"))
    lake.create_table("raw.typed", TYPED.schema).append(TYPED)
    model = SqlModel(name="marts.x", sql=query)
    wanted = _computed(lake, spark, model.table())
    for engine in OTHERS:
        table = replace(model, engine=engine)
        if engine != NOT_FOR_ALL[query]:
            assert _computed(lake, spark, table.table()) == wanted, engine
            continue
        with pytest.raises(InvalidInputError, match=f"not known to mean the same in {engine}"):
            _computed(lake, None, table.table())


@pytest.mark.parametrize("engine", OTHERS)
@pytest.mark.parametrize(
    "term",
    [
        "round(f, 2)", "avg(d)", "d * d", "CAST(f AS INT)", "CAST(d AS INT)", "CAST(s AS INT)",
        "CAST(f AS STRING)", "CAST(at AS STRING)", "CAST(f AS DECIMAL(10, 2))",
        "CAST(d AS DECIMAL(10, 1))", "k / 2", "k % 2", "concat(s, k)", "initcap(s)", "length(k)",
        "timestampadd(MONTH, 1, at)", "coalesce(d, 0)", "to_date(s)", "date_trunc('HOUR', wall)",
        "rand()", "collect_list(s)", "s LIKE s", "s LIKE 'a\\\\%'", "first(s)", "substring(s, -2)",
        "floor(d)", "greatest(f, k)", "at + INTERVAL 1 MONTH", "day + INTERVAL 1 DAY", "ltrim(s)",
        "replace(s, '', 'x')", "dayofweek(day)", "s ILIKE 'A%'", "round(d, 1)",
    ],
)  # fmt: skip
def test_what_may_mean_something_else_is_refused_by_name(
    engine: str, term: str, tmp_path: Path
) -> None:
    lake = load_catalog(str(tmp_path / "warehouse"))
    lake.create_table("raw.typed", TYPED.schema).append(TYPED)
    model = SqlModel(name="marts.x", sql=f"SELECT {term} AS x FROM raw.typed", engine=engine)
    with pytest.raises(InvalidInputError, match=f"not known to mean the same in {engine}"):
        _computed(lake, None, model.table())


@pytest.mark.parametrize("engine", OTHERS)
def test_columns_that_are_not_there_are_told(engine: str, lake: Lakehouse) -> None:
    table = SqlModel(name="marts.x", sql="SELECT nix FROM raw.flights", engine=engine).table()
    with pytest.raises(InvalidInputError, match="nix"):
        _computed(lake, None, table)


def test_engines_and_dialects_that_there_are_not() -> None:
    with pytest.raises(InvalidInputError, match="no engine 'oracle'; engines: spark, datafusion"):
        SqlModel(name="marts.x", sql="SELECT 1 FROM a.b", engine="oracle").table()
    with pytest.raises(InvalidInputError, match="no engine 'oracle'"):
        DerivedTable(name="marts.x", inputs=("a.b",), transform=dict, engine="oracle")
    with pytest.raises(InvalidInputError, match="not of polars"):
        SqlModel(name="marts.x", sql="SELECT 1 FROM a.b", engine="duckdb", dialect="polars").table()


OWN_SQL = {
    "duckdb": "list(DISTINCT origin ORDER BY origin)",
    "datafusion": "array_agg(DISTINCT origin ORDER BY origin)",
    "polars": "ARRAY_AGG(DISTINCT origin)",
}


@pytest.mark.parametrize("engine", OTHERS)
def test_a_model_in_its_engines_own_sql(engine: str, lake: Lakehouse) -> None:
    sql = f"SELECT median(distance) AS m, {OWN_SQL[engine]} AS o FROM raw.flights"
    model = SqlModel(name="marts.x", sql=sql, engine=engine, dialect=engine)
    types, rows = _computed(lake, None, model.table())
    ((median, origins),) = rows
    assert float(median) == pytest.approx(349.5, abs=0.5)
    assert sorted(origins) == ["EWR", "JFK", "LGA"]
    assert pa.types.is_string(types["o"].value_type)


def _delayed(inputs: dict[str, object]) -> object:
    (frame,) = inputs.values()
    module = type(frame).__module__.partition(".")[0].lstrip("_")
    if module == "duckdb":
        return frame.filter("dep_delay > 20").project("event_ts, carrier, flight")
    if module == "polars":
        import polars as pl

        return frame.filter(pl.col("dep_delay") > 20).select("event_ts", "carrier", "flight")
    import datafusion as df

    return frame.filter(df.col("dep_delay") > 20).select("event_ts", "carrier", "flight")


def _materialized(
    lake: Lakehouse,
    table: DerivedTable,
    instance: dg.DagsterInstance,
    day: str | None = None,
    last: str = "",
) -> dg.ExecuteInProcessResult:
    days = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-01-05")
    return materialized(lake, table, instance, day, last, days=days)


def _replayed(table: DerivedTable, lineage: Lineage, lake: Lakehouse) -> Replay:
    def session() -> object:
        pytest.fail("an engine that is not Spark starts no session")

    checkout = SimpleNamespace(pipeline=Pipeline((), (table,), ""), defs=dg.Definitions())
    return replayed(checkout, lineage, lake, session)


@pytest.mark.parametrize("engine", OTHERS)
def test_a_table_of_another_engine_is_an_asset_like_any(engine: str, lake: Lakehouse) -> None:
    table = DerivedTable(
        name="marts.delayed",
        inputs=("raw.flights",),
        transform=_delayed,
        engine=engine,
        day_column="event_ts",
        partition_by=("day(event_ts)",),
        suites=(
            Suite("contract", (expect("column_values_to_not_be_null", column="carrier"),)),
            Suite(
                "all_of_aa",
                (expect("column_values_to_be_in_set", column="carrier", value_set=["AA"]),),
                blocking=False,
            ),
        ),
    )  # fmt: skip
    read = lake.load_table("raw.flights").metadata.current_snapshot_id
    wanted = lake.load_table("raw.flights").scan("dep_delay > 20").to_arrow()
    with dg.DagsterInstance.ephemeral() as instance:
        for day in ("2013-01-01", "2013-01-02"):
            assert _materialized(lake, table, instance, day).success
        lineage = read_lineage(instance, lake, "marts/delayed", "2013-01-02")
        assert {one.table: one.snapshot_id for one in lineage.inputs} == {"raw.flights": read}
        lake.load_table("raw.flights").delete("flight > 100")  # the replay reads what was read
        replay = _replayed(table, lineage, lake)
        assert replay.equal, replay.examples
        assert replay.rows > 5
    found = lake.load_table("marts.delayed").scan().to_arrow().to_pylist()
    first = [
        {name: row[name] for name in ("event_ts", "carrier", "flight")}
        for row in wanted.to_pylist()
        if row["event_ts"].date() == date(2013, 1, 1)
    ]
    assert sorted(
        (r for r in found if r["event_ts"].date() == date(2013, 1, 1)), key=repr
    ) == sorted(first, key=repr)


def test_each_day_of_a_run_shows_its_own_rows(lake: Lakehouse) -> None:
    table = SqlModel(
        name="marts.delayed",
        sql="SELECT event_ts, flight FROM raw.flights WHERE dep_delay > 20 AND flight % 3 < 2",
        engine="duckdb",
        dialect="duckdb",
        day_column="event_ts",
        partition_by=("month(event_ts)",),
    ).table()
    days = [f"2013-01-0{number}" for number in (1, 2, 3)]
    with dg.DagsterInstance.ephemeral() as instance:
        assert _materialized(lake, table, instance, days[0], days[2]).success
        found = instance.fetch_materializations(table.key, limit=9).records
    shown = {
        one.partition_key: one.asset_materialization.metadata["dagster/partition_row_count"].value
        for one in found
    }
    rows = lake.load_table("marts.delayed").scan().to_arrow()["event_ts"].to_pylist()
    assert shown == {day: sum(str(at.date()) == day for at in rows) for day in days}
    assert min(shown.values()) == 0 < max(shown.values())


@pytest.mark.parametrize("engine", OTHERS)
def test_a_replay_that_differs_says_what(engine: str, lake: Lakehouse) -> None:
    sql = "SELECT carrier, count(*) AS flights FROM raw.flights GROUP BY carrier"
    table = SqlModel(name="marts.carriers", sql=sql, engine=engine).table()
    with dg.DagsterInstance.ephemeral() as instance:
        assert _materialized(lake, table, instance).success
        lineage = read_lineage(instance, lake, "marts/carriers")
    sql = sql.replace("GROUP", "WHERE carrier <> 'UA' GROUP")
    again = SqlModel(name="marts.carriers", sql=sql, engine=engine)
    replay = _replayed(again.table(), lineage, lake)
    assert (replay.rows, replay.missing, replay.unexpected) == (3, 1, 0)
    assert replay.examples == ("missing: {'carrier': 'UA', 'flights': 75}",)
    # a column that is not computed any more is null in what is computed again
    less = replace(again, sql="SELECT carrier FROM raw.flights GROUP BY carrier")
    replay = _replayed(less.table(), lineage, lake)
    assert (replay.rows, replay.missing, replay.unexpected) == (4, 4, 4)


@pytest.mark.parametrize("engine", OTHERS)
def test_data_that_fails_a_check_is_not_published(engine: str, lake: Lakehouse) -> None:
    model = SqlModel(
        name="marts.tails",
        sql="SELECT event_ts, tailnum FROM raw.flights",
        engine=engine,
        day_column="event_ts",
        suites=(Suite("contract", (expect("column_values_to_not_be_null", column="tailnum"),)),),
    )
    with dg.DagsterInstance.ephemeral() as instance:
        result = _materialized(lake, model.table(), instance, "2013-01-01")
    assert not result.success
    (failed,) = [
        one for one in result.get_asset_check_evaluations() if one.check_name == "contract"
    ]
    assert not failed.passed
    assert lake.load_table("marts.tails").current_snapshot() is None


@pytest.mark.parametrize("engine", OTHERS)
def test_a_lost_file_of_an_input_is_told_as_what_it_is(engine: str, lake: Lakehouse) -> None:
    files = lake.load_table("raw.flights").inspect.files().to_pylist()
    Path(files[0]["file_path"].removeprefix("file://")).unlink()
    model = SqlModel(name="marts.x", sql="SELECT carrier FROM raw.flights", engine=engine)
    with pytest.raises(NoSuchFileError):
        _computed(lake, None, model.table())


@pytest.mark.parametrize("engine", OTHERS)
def test_an_engine_is_changed_under_a_table_that_there_is(engine: str, lake: Lakehouse) -> None:
    """The table keeps its types: what another engine gives is stored in them, or refused."""
    first = SqlModel(
        name="marts.x", sql="SELECT carrier, count(*) AS n FROM raw.flights GROUP BY carrier",
        engine="duckdb",
    )  # fmt: skip
    second = SqlModel(
        name="marts.x",
        sql="SELECT carrier, CAST(count(*) AS SMALLINT) AS n, max(flight) AS newest "
        "FROM raw.flights GROUP BY carrier",
        engine=engine,
    )
    with dg.DagsterInstance.ephemeral() as instance:
        for model in (first, second):
            assert _materialized(lake, model.table(), instance).success
    table = lake.load_table("marts.x")
    assert str(table.schema().find_type("n")) == "long"
    assert table.scan().to_arrow().sort_by("carrier").to_pylist()[0] == {
        "carrier": "9E", "n": 75, "newest": 299,
    }  # fmt: skip


@pytest.mark.parametrize("engine", OTHERS)
def test_text_of_its_own_dialect_is_run_as_it_is_written(engine: str, lake: Lakehouse) -> None:
    sql = (
        'SELECT f.carrier, \'raw.flights "f"\' AS t FROM "raw"."flights" AS f -- raw.flights\n'
        "JOIN (SELECT max(flight) AS last FROM raw.flights) AS m ON f.flight = m.last"
    )
    model = SqlModel(name="marts.x", sql=sql, engine=engine, dialect=engine)
    assert _computed(lake, None, model.table())[1] == [("9E", 'raw.flights "f"')]


@pytest.mark.spark
@pytest.mark.parametrize("engine", OTHERS)
def test_checks_find_what_they_find_of_sparks_rows(engine: str, tmp_path: Path, spark) -> None:
    """Large integers beside nulls are where pandas would round.

    Bounds are small: Great Expectations makes floats of them, on any engine.
    """
    near = 2**53
    rows = pa.table(
        {
            "n": pa.array([near, near + 1, None], pa.int64()),
            "i": pa.array([1, 2, None], pa.int32()),
            "b": pa.array([True, None, False]),
            "m": pa.array([Decimal("1.10"), None, Decimal("2.00")], pa.decimal128(9, 2)),
            "s": ["a", None, "a"],
        }
    )
    lake = load_catalog(str(tmp_path / "numbers"))
    table = lake.create_table("raw.numbers", rows.schema)
    written = InputRows(table, None, table.append(rows).snapshot.snapshot_id)
    expectations = [
        *(expect("column_values_to_be_unique", column=name) for name in ("n", "i", "s")),
        *(expect("column_values_to_not_be_null", column=name, mostly=0.6) for name in ("n", "b")),
        expect("column_values_to_be_between", column="i", max_value=1),
        expect("column_values_to_be_between", column="n", min_value=3),
        expect("column_values_to_be_between", column="m", min_value=1, max_value=1.5),
        expect("column_values_to_be_in_set", column="n", value_set=[near]),
        expect("column_values_to_be_in_set", column="b", value_set=[True]),
        expect("compound_columns_to_be_unique", column_list=["n", "i"]),
    ]
    suites = [Suite(str(at), (one,)) for at, one in enumerate(expectations)]

    def passed(name: str) -> list[bool]:
        with open_engine(name, lambda: spark).staged(written) as staged:
            return [one.passed for one in validate(staged, suites, "rows")]

    assert passed(engine) == passed("spark")
    assert len(set(passed("spark"))) == 2


def test_a_failed_check_shows_the_landing_lines(lake: Lakehouse) -> None:
    """Of rows that were not published: they are read from the snapshot that was rejected."""
    raw = lake.load_table("raw.flights").scan().to_arrow()
    count = raw.num_rows
    raw = raw.append_column("landing_file", pa.array(["a.jsonl"] * count))
    raw = raw.append_column("landing_line", pa.array(range(1, count + 1)))
    lake.create_table("raw.landed", raw.schema).append(raw)
    table = SqlModel(
        name="clean.landed",
        sql="SELECT carrier, flight FROM raw.landed WHERE dep_delay > 20",
        engine="datafusion",
        suites=(
            Suite(
                "known", (expect("column_values_to_be_in_set", column="carrier", value_set=["AA"]),)
            ),
        ),
    ).table()
    with dg.DagsterInstance.ephemeral() as instance:
        done = _materialized(lake, table, instance)
    assert not done.success
    (check,) = [one for one in done.get_asset_check_evaluations() if not one.passed]
    shown = {name: one.value for name, one in check.metadata.items()}
    wanted = [
        row["landing_line"]
        for row in raw.to_pylist()
        if (row["dep_delay"] or 0) > 20 and row["carrier"] != "AA"
    ]
    assert shown["explain"].startswith("lakehouse why clean.landed --snapshot ")
    assert "--where \"carrier IN ('" in shown["explain"]
    file, lines = shown["landing lines"].split(": ")
    assert file == "a.jsonl"
    ends = [one.split("-") for one in lines.split(", and ")[0].split(", ")]
    told = [
        line for first, *last in ends for line in range(int(first), int((last or [first])[0]) + 1)
    ]
    assert told == wanted[: len(told)]
    assert told


def test_a_failed_check_shows_the_landing_lines_of_its_days_alone(lake: Lakehouse) -> None:
    """Rows of other days have the value, too: this run's check did not count them."""
    raw = pa.table(
        {
            "event_ts": pa.array([_at(day, 9) for day in (1, 2, 3)]),
            "delay": [900, 900, 900],
            "landing_file": [f"2013-01-0{day}.jsonl" for day in (1, 2, 3)],
            "landing_line": [1, 2, 3],
        }
    )
    lake.create_table("raw.delays", raw.schema).append(raw)
    table = SqlModel(
        name="clean.delays",
        sql="SELECT event_ts, delay FROM raw.delays",
        engine="datafusion",
        day_column="event_ts",
        suites=(
            Suite(
                "plausible",
                (expect("column_values_to_be_between", column="delay", max_value=720),),
                blocking=False,
            ),
        ),
    ).table()
    with dg.DagsterInstance.ephemeral() as instance:
        assert _materialized(lake, table, instance, "2013-01-01", "2013-01-03").success
        done = _materialized(lake, table, instance, "2013-01-02")
    (check,) = [one for one in done.get_asset_check_evaluations() if not one.passed]
    assert check.metadata["unexpected_values"].value == 1
    assert check.metadata["landing lines"].value == "2013-01-02.jsonl: 2"
