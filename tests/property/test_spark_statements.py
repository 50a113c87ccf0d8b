"""Statements on a lakehouse table do what they do on tables of Spark's own.

`LAKEHOUSE_SPARK_STATEMENTS` is how many are tried (default 60), `LAKEHOUSE_SPARK_SEED` where the
first table begins.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException

from lakehouse.lake import load_catalog
from lakehouse.spark import attach
from tests.property.spark_statements import TYPES, Generator, Statement

pytestmark = pytest.mark.spark

PER_TABLE = 12
STATEMENTS = int(os.environ.get("LAKEHOUSE_SPARK_STATEMENTS", "60"))
SEED = int(os.environ.get("LAKEHOUSE_SPARK_SEED", "1"))
PARTITIONS = ["", "bucket(2, id)", "days(at)", "truncate(2, s)", "p", "i", "months(wall), b", "day"]
ZONES = ["UTC", "Asia/Tokyo", "America/New_York"]
# what fails in a subquery reaches PySpark as Java's own exception, from any table
FAILURES = (PySparkException, Py4JJavaError)
COLUMNS = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
CODEGEN = {
    True: {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"},
    False: {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"},
}


@dataclass
class Both:
    """A lakehouse table and Spark's own Parquet tables, one for each version."""

    sql: object
    now: str = "spark_catalog.default.stated_a"
    next: str = "spark_catalog.default.stated_b"
    table: str = "stated.raw.t"

    def rows(self, name: str) -> list[str]:
        return sorted(repr(tuple(row)) for row in self.sql(f"SELECT * FROM {name}").collect())

    def expected(self, one: Statement) -> Exception | None:
        """Do it to Spark's own table; the failure, after which the table is what it was."""
        try:
            if one.steps is None:
                self.sql(f"INSERT OVERWRITE {self.next} SELECT * FROM {self.now}")
                text = one.text.replace("INSERT INTO {t}", "INSERT INTO {next}")
                steps = [text.replace("INSERT OVERWRITE {t}", "INSERT OVERWRITE {next}")]
            else:
                self.sql(f"INSERT OVERWRITE {self.next} SELECT * FROM {self.now} WHERE false")
                steps = one.steps
            # Spark's own row group filters lose rows of October 1582, and those of negative zero
            self.sql("SET spark.sql.parquet.filterPushdown = false")
            for step in steps:
                self.sql(step.replace("{t}", self.now).format(now=self.now, next=self.next))
        except FAILURES as failure:
            return failure
        finally:
            self.sql("RESET spark.sql.parquet.filterPushdown")
        self.now, self.next = self.next, self.now
        return None

    def tried(self, one: Statement) -> Exception | None:
        try:
            self.sql(one.text.replace("{t}", self.table))
        except FAILURES as failure:
            return failure
        return None


@pytest.fixture
def both(spark, tmp_path):
    session = spark.newSession()
    attach(session, load_catalog(f"file://{tmp_path}/stated"), name="stated")
    session.sql("CREATE NAMESPACE stated.raw")
    names = ["stated_a", "stated_b", "stated_other"]
    for name in names:
        session.sql(
            f"CREATE TABLE spark_catalog.default.{name} ({COLUMNS}) USING parquet "
            f"LOCATION '{tmp_path}/{name}'"
        )
    session.conf.set("spark.sql.shuffle.partitions", "1")
    session.conf.set("spark.sql.adaptive.enabled", "false")
    session.conf.set("spark.sql.leafNodeDefaultParallelism", "1")
    yield Both(session.sql), session
    for name in names:
        session.sql(f"DROP TABLE spark_catalog.default.{name}")


def made(both: Both, chance: random.Random, generator: Generator) -> str:
    """A table with some rows, in some files, some of them deleted; what it is like."""
    modes = [chance.choice(["copy-on-write", "merge-on-read"]) for _ in range(3)]
    version, partitions = chance.choice([2, 3]), chance.choice(PARTITIONS)
    clause = f"PARTITIONED BY ({partitions})" if partitions else ""
    text = (
        f"CREATE TABLE {both.table} ({COLUMNS}) {clause} TBLPROPERTIES ('format-version' = "
        f"'{version}', 'write.delete.mode' = '{modes[0]}', 'write.update.mode' = '{modes[1]}', "
        f"'write.merge.mode' = '{modes[2]}')"
    )
    both.sql(f"DROP TABLE IF EXISTS {both.table}")
    both.sql(text)
    both.sql(f"INSERT OVERWRITE spark_catalog.default.stated_other {generator.rows(8)}")
    both.sql(f"INSERT OVERWRITE {both.now} {generator.rows(10)}")
    both.sql(f"INSERT INTO {both.table} SELECT * FROM {both.now} WHERE id <= 2")
    both.sql(f"INSERT INTO {both.table} SELECT * FROM {both.now} WHERE id > 2 OR id IS NULL")
    return text


def test_statements_do_what_they_do_on_sparks_own_tables(both):
    both, session = both
    tried = failed = 0
    for seed in range(SEED, SEED + -(-STATEMENTS // PER_TABLE)):
        chance = random.Random(seed)
        settings = {
            "spark.sql.ansi.enabled": chance.choice(["true", "false"]),
            "spark.sql.session.timeZone": chance.choice(ZONES),
            "spark.sql.caseSensitive": chance.choice(["true", "false", "false"]),
            **CODEGEN[chance.random() < 0.2],
        }
        generator = Generator(
            chance,
            "spark_catalog.default.stated_other",
            any_case=settings["spark.sql.caseSensitive"] == "false",
        )
        for key, value in settings.items():
            session.conf.set(key, value)
        table = made(both, chance, generator)
        for _ in range(min(PER_TABLE, STATEMENTS - tried)):
            one = generator.statement()
            told = f"seed {seed}, {settings}\n{table}\n{one.text}"
            expected, found = both.expected(one), both.tried(one)
            tried += 1
            assert expected is not None or found is None, f"{told}\nonly here: {found}"
            assert found is not None or expected is None, f"{told}\nonly in Spark: {expected}"
            kinds = [isinstance(failure, AnalysisException) for failure in (found, expected)]
            assert kinds[0] == kinds[1], f"{told}\nhere: {found}\nin Spark: {expected}"
            assert both.rows(both.table) == both.rows(both.now), f"{told}\n{found or ''}"
            failed += found is not None
    print(f"{tried} statements, {failed} of them errors for both")  # noqa: T201
    assert failed < tried / 2
