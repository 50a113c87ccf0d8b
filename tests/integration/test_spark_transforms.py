"""Partition transforms as Spark expressions beside pyiceberg's, on many random values.

The keys that Spark computes bring rows of one partition together: a key stands for exactly one
partition value and the other way round, keys are ordered as the values are (bucket numbers are the
values), in any session zone. `TRANSFORM_VALUES=1000000` for a million values a type.
"""

from __future__ import annotations

import os
import re

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg import transforms as t
from pyspark.errors import AnalysisException, PySparkException

from lakehouse.expressions.transforms.partition_transforms import transform_array
from lakehouse.spark.writing.distribution import transform_column
from lakehouse.spec.types.arrow_types import schema_from_arrow
from tests.integration.spark_support import configured, lake, session

__all__ = ["lake", "session"]

pytestmark = pytest.mark.spark

COUNT = int(os.environ.get("TRANSFORM_VALUES", "1000"))
DAY_US = 86_400_000_000
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
CALENDAR = [t.YearTransform(), t.MonthTransform(), t.DayTransform()]
CASES = {
    "i": [t.BucketTransform(97), t.TruncateTransform(7)],
    "l": [t.BucketTransform(97), t.TruncateTransform(1000)],
    "s": [t.BucketTransform(97), t.TruncateTransform(2)],
    "m": [t.BucketTransform(97), t.TruncateTransform(50)],
    "d": [t.BucketTransform(97), *CALENDAR],
    "ts": [t.BucketTransform(97), *CALENDAR, t.HourTransform()],
    "tz": [t.BucketTransform(97), *CALENDAR, t.HourTransform()],
}


def mixed(rng, low, high, near):
    """Half over the whole range, half near zero, where rounding and signs go wrong."""
    wide = rng.integers(low, high, COUNT // 2, dtype=np.int64, endpoint=True)
    return np.concatenate([wide, rng.integers(-near, near, COUNT - len(wide), dtype=np.int64)])


def values() -> pa.Table:
    rng = np.random.default_rng(11)
    micros = [mixed(rng, FIRST_DAY * DAY_US, LAST_DAY * DAY_US, 5 * DAY_US) for _ in range(2)]
    letters = np.array(list("ab\u00e9\u65e5\U0001f389 ~"))
    texts = ["".join(word) for word in rng.choice(letters, (COUNT, 3))]
    columns = {
        "id": pa.array(np.arange(COUNT)),
        "i": pa.array(mixed(rng, -(2**31) + 10, 2**31 - 1, 50), pa.int32()),
        "l": pa.array(mixed(rng, -(2**62), 2**63 - 1, 5000)),
        "s": pa.array(texts),
        "m": pa.array(mixed(rng, -(10**8), 10**8, 500))
        .cast(pa.decimal128(19, 0))
        .cast(pa.decimal128(21, 2)),
        "d": pa.array(mixed(rng, FIRST_DAY, LAST_DAY, 800).astype(np.int32)).cast(pa.date32()),
        "ts": pa.array(micros[0]).cast(pa.timestamp("us")),
        "tz": pa.array(micros[1]).cast(pa.timestamp("us", "UTC")),
    }
    table = pa.table(columns)
    nulls = pa.array(np.arange(COUNT) % 101 == 7)
    for at, name in enumerate(table.column_names[1:], 1):
        column = table[name].combine_chunks()
        table = table.set_column(
            at, name, pa.compute.if_else(nulls, pa.scalar(None, column.type), column)
        )
    return table


def scalars(transform, kind, column):
    """pyiceberg's own, value by value, in Iceberg's representation."""
    raw = column.combine_chunks()
    if pa.types.is_date(raw.type) or pa.types.is_timestamp(raw.type):
        raw = raw.view(pa.int32() if raw.type.bit_width == 32 else pa.int64())
    scalar = transform.transform(kind)
    return [scalar(value) for value in raw.to_pylist()]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_keys_are_pyicebergs_partitions(spark, zone, tmp_path):
    import pyarrow.parquet as pq

    data = values()
    schema = schema_from_arrow(data.schema)
    pq.write_table(data, tmp_path / "values.parquet")
    cases = [(name, transform) for name, transforms in CASES.items() for transform in transforms]
    keys = [
        transform_column(t, schema, schema.find_field(name).field_id).alias(f"k{i}")
        for i, (name, t) in enumerate(cases)
    ]
    with configured(spark, {"spark.sql.session.timeZone": zone}):
        found = (
            spark.read.parquet(str(tmp_path / "values.parquet"))
            .select("id", *keys)
            .toArrow()
            .sort_by("id")
        )
    for number, (name, transform) in enumerate(cases):
        kind = schema.find_field(name).field_type
        expected = scalars(transform, kind, data[name])
        assert len(transform_array(transform, data[name], kind)) == len(expected)
        got = found[f"k{number}"].to_pylist()
        pairs = set(zip(got, expected, strict=True))
        keyed, valued = {key for key, _ in pairs}, {value for _, value in pairs}
        assert len(keyed) == len(valued) == len(pairs), (zone, name, transform)
        assert (None, None) in pairs
        known = sorted((value, key) for key, value in pairs if value is not None)
        if isinstance(transform, t.BucketTransform):
            assert name not in ("i", "l", "d", "tz") or all(value == key for value, key in known), (
                zone,
                name,
            )
        else:
            assert [key for _, key in known] == sorted(key for _, key in known), (
                zone,
                name,
                transform,
            )


@pytest.mark.parametrize("codegen", ["CODEGEN_ONLY", "NO_CODEGEN"])
def test_functions_of_the_catalog_are_pyicebergs_transforms(spark, session, codegen, tmp_path):
    import pyarrow.parquet as pq

    data = values()
    schema = schema_from_arrow(data.schema)
    pq.write_table(data, tmp_path / "values.parquet")
    cases = [(name, transform) for name, transforms in CASES.items() for transform in transforms]
    with configured(spark, {"spark.sql.codegen.factoryMode": codegen}):
        spark.read.parquet(str(tmp_path / "values.parquet")).createOrReplaceTempView("transformed")
        calls = (f"{called(*one)} AS k{number}" for number, one in enumerate(cases))
        found = spark.sql(f"SELECT id, {', '.join(calls)} FROM transformed").toArrow().sort_by("id")
    for number, (name, transform) in enumerate(cases):
        got = found[f"k{number}"]
        if pa.types.is_date(got.type):
            got = got.cast(pa.int32())
        expected = scalars(transform, schema.find_field(name).field_type, data[name])
        assert got.to_pylist() == expected, (name, transform)


def called(name, transform):
    """The transform of a column as Spark SQL."""
    if isinstance(transform, t.BucketTransform):
        return f"lake.system.bucket({transform.num_buckets}, {name})"
    if isinstance(transform, t.TruncateTransform):
        return f"lake.system.truncate({transform.width}, {name})"
    return f"lake.system.{transform}s({name})"


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("bucket(id)", "bucket(buckets, value)"),
        ("bucket('4', id)", "the number is a string"),
        ("bucket(4, CAST(id AS DOUBLE))", "no bucket of double"),
        ("hours(DATE '2026-01-01')", "no hours of date"),
        ("days(id)", "no days of bigint"),
        ("truncate(3000000000, id)", "the number is a bigint"),
        ("bucket(99999999999999999999, id)", "the number is a decimal(20,0)"),
    ],
)
def test_what_iceberg_has_no_transform_for_is_told(spark, session, call, told):
    with pytest.raises(AnalysisException, match=re.escape(told)):
        spark.sql(f"SELECT lake.system.{call} FROM range(1)")


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("bucket(0, id)", "number of buckets must be above zero"),
        ("bucket(0, 7)", "number of buckets must be above zero"),
        ("bucket(-1, CAST(id AS STRING))", "number of buckets must be above zero"),
        ("truncate(0, id)", "width must be above zero"),
        ("truncate(-1, CAST(id AS STRING))", "width must be above zero"),
        ("truncate(0, CAST(id AS DECIMAL(9, 2)))", "width must be above zero"),
        ("truncate(-2, CAST(CAST(id AS STRING) AS BINARY))", "width must be above zero"),
        (
            "truncate(10, id + CAST('-9223372036854775808' AS BIGINT))",
            "lies outside its result type",
        ),
        ("truncate(7, CAST(id - 2147483648 AS INT))", "lies outside its result type"),
    ],
)
def test_arguments_without_a_result_are_told(spark, session, call, told):
    with pytest.raises(PySparkException, match=told):
        spark.sql(f"SELECT lake.system.{call} FROM range(1)").collect()


@pytest.mark.parametrize(
    "term",
    ["truncate(3000000000, k)", "truncate(k, 99999999999999999999)", "bucket(3000000000, id)"],
)
def test_tables_are_not_partitioned_by_numbers_out_of_range(spark, session, lake, term):
    spark.sql("CREATE NAMESPACE lake.raw")
    with pytest.raises(PySparkException, match=term.partition("(")[0]):
        spark.sql(f"CREATE TABLE lake.raw.t (id BIGINT, k STRING) PARTITIONED BY ({term})")
    assert not lake.table_exists("raw.t")
