"""A lakehouse table and Spark's own Parquet tables, changed by the same statements."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from lakehouse.lake import load_catalog
from lakehouse.spark import attach
from tests.spark_statements.generator import FIRST_OF_EACH_ID, Generator, Statement
from tests.spark_statements.vocabulary import TYPES

PER_TABLE = 12
PARTITIONS: dict[tuple[str, ...], list[str]] = {
    (): [],
    ("bucket(2, id)",): ["stated.system.bucket(2, {0}.id)"],
    ("days(at)",): ["floor(unix_micros({0}.at) / 86400000000BD)"],
    ("truncate(2, s)",): ["substring({0}.s, 1, 2)"],
    ("p",): ["{0}.p"],
    ("i",): ["{0}.i"],
    ("months(wall)", "b"): ["year({0}.wall) * 12 + month({0}.wall)", "{0}.b"],
    ("day",): ["{0}.day"],
    ("years(day)", "bucket(3, s)"): ["year({0}.day)", "stated.system.bucket(3, {0}.s)"],
}
"""Partitionings of the lakehouse table, and which rows share a partition in words of Spark."""

ZONES = ["UTC", "Asia/Tokyo", "America/New_York", "Asia/Kolkata", "Pacific/Apia"]
CODEGEN = {
    True: {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"},
    False: {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"},
}
PROPERTIES = {
    "write.delete.mode": ["copy-on-write", "merge-on-read"],
    "write.update.mode": ["copy-on-write", "merge-on-read"],
    "write.merge.mode": ["copy-on-write", "merge-on-read"],
    "write.delete.granularity": ["file", "partition"],
    "write.distribution-mode": ["none", "hash", "range"],
    "write.merge.isolation-level": ["serializable", "snapshot"],
}
DEFAULTS = {"i": "7", "s": "'dflt'", "day": "DATE '2020-02-29'"}
COLUMNS = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
OTHER = "spark_catalog.default.stated_other"
FIRST = "spark_catalog.default.stated_first"
# what fails in a subquery reaches PySpark as Java's own exception, from any table
FAILURES = (PySparkException, Py4JJavaError)


@dataclass
class Shape:
    """What one table and its session are like; everything follows from the seed."""

    seed: int
    chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        chance = self.chance = random.Random(self.seed)
        self.dynamic = chance.random() < 0.5
        several_tasks = chance.random() < 0.15
        self.settings = {
            "spark.sql.ansi.enabled": chance.choice(["true", "false"]),
            "spark.sql.session.timeZone": chance.choice(ZONES),
            "spark.sql.caseSensitive": chance.choice(["true", "false", "false"]),
            "spark.sql.sources.partitionOverwriteMode": "dynamic" if self.dynamic else "static",
            "spark.sql.storeAssignmentPolicy": "STRICT" if chance.random() < 0.1 else "ANSI",
            "spark.sql.shuffle.partitions": "3" if several_tasks else "1",
            "spark.sql.leafNodeDefaultParallelism": "2" if several_tasks else "1",
            "spark.sql.adaptive.enabled": str(several_tasks).lower(),
            **CODEGEN[chance.random() < 0.2],
        }
        self.partitioned_by = chance.choice(list(PARTITIONS))
        self.evolved_to = chance.choice(list(PARTITIONS)) if chance.random() < 0.15 else None
        self.properties = {key: chance.choice(values) for key, values in PROPERTIES.items()}
        self.properties["format-version"] = chance.choice(["2", "3"])
        has_defaults = self.properties["format-version"] == "3" and chance.random() < 0.4
        self.defaults = DEFAULTS if has_defaults else {}
        self.branch = chance.random() < 0.2
        self.sorted_by = chance.random() < 0.2

    def create(self, name: str) -> str:
        """The statement that makes the lakehouse table."""
        columns = ", ".join(
            f"{column} {kind}"
            + (f" DEFAULT {self.defaults[column]}" if column in self.defaults else "")
            for column, kind in TYPES.items()
        )
        terms = ", ".join(self.partitioned_by)
        clause = f" PARTITIONED BY ({terms})" if terms else ""
        told = ", ".join(f"'{key}' = '{value}'" for key, value in self.properties.items())
        return f"CREATE TABLE {name} ({columns}){clause} TBLPROPERTIES ({told})"

    def generator(self) -> Generator:
        """Of statements about such a table."""
        return Generator(
            self.chance,
            OTHER,
            FIRST,
            any_case=self.settings["spark.sql.caseSensitive"] == "false",
            key=PARTITIONS[self.partitioned_by],
            identity=[one for one in self.partitioned_by if one in TYPES],
            dynamic=self.dynamic if self.evolved_to is None else None,
            defaults=self.defaults,
        )

    def __str__(self) -> str:
        more = {"evolved to": self.evolved_to, "branch": self.branch, "sorted": self.sorted_by}
        return f"seed {self.seed}, {self.settings}\n{self.create('t')}\n{more}"


@dataclass
class Tally:
    """What was tried, and what differed."""

    statements: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    differences: dict[int, str] = field(default_factory=dict)


class StatedTables:
    """The tables of a session; its settings are those of the seed at hand.

    Args:
        spark: whose sessions are made.
        folder: an empty folder for all tables.
    """

    now = "spark_catalog.default.stated_a"
    next = "spark_catalog.default.stated_b"

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._session = spark.newSession()
        self.sql = self._session.sql
        self._lake = load_catalog(f"file://{folder}/stated")
        attach(self._session, self._lake, name="stated")
        self.sql("CREATE NAMESPACE stated.raw")
        self._names = [self.now, self.next, OTHER, FIRST]
        for name in self._names:
            self.sql(f"DROP TABLE IF EXISTS {name}")
            place = folder / name.rpartition(".")[2]
            self.sql(f"CREATE TABLE {name} ({COLUMNS}) USING parquet LOCATION '{place}'")
            self.sql(f"INSERT INTO {name} SELECT * FROM {name}")
        self._numbers = 0

    def drop(self) -> None:
        """Drop Spark's own tables, of which all sessions know."""
        for name in self._names:
            self.sql(f"DROP TABLE {name}")

    def one_table(self, seed: int, statements: int, tally: Tally) -> None:
        """Statements on a new table, up to the first after which it is not what Spark's is."""
        shape = Shape(seed)
        for key, value in shape.settings.items():
            self._session.conf.set(key, value)
        generator = shape.generator()
        table = self._made(shape, generator)
        for _ in range(statements):
            one = generator.statement()
            tally.statements[one.kind] += 1
            expected, found = self._expected(one), self._tried(one, table)
            difference = _failures_differ(found, expected)
            if not difference:
                here, there = self._rows(table), self._rows(self.now)
                if here != there:
                    more, fewer = Counter(here) - Counter(there), Counter(there) - Counter(here)
                    difference = f"only here: {list(more)}\nonly in Spark: {list(fewer)}"
            if difference:
                tally.differences[seed] = f"{shape}\n{one.text}\n{difference}"
                return
            if found is not None:
                tally.failed[condition(found)] += 1

    def _made(self, shape: Shape, generator: Generator) -> str:
        """A table with some rows, in some files; its name."""
        self._numbers += 1
        identifier = f"raw.t{self._numbers}"
        name = f"stated.{identifier}"
        self.sql(shape.create(name))
        for parquet in self._names:
            for column in DEFAULTS:
                told = f"SET DEFAULT {shape.defaults[column]}" if shape.defaults else "DROP DEFAULT"
                self.sql(f"ALTER TABLE {parquet} ALTER COLUMN {column} {told}")
        self.sql(f"INSERT OVERWRITE {OTHER} {generator.rows(8)}")
        first = FIRST_OF_EACH_ID.replace("{0}", OTHER)
        self.sql(f"INSERT OVERWRITE {FIRST} SELECT {', '.join(TYPES)} FROM {first}")
        # statements on both sides read these whole, not through Spark's row group filters, which
        # lose rows of October 1582
        for source in (OTHER, FIRST):
            self.sql(f"CACHE LAZY TABLE {source}")
        self.sql(f"INSERT OVERWRITE {self.now} {generator.rows(10)}")
        self.sql(f"INSERT INTO {name} SELECT * FROM {self.now} WHERE id <= 2")
        table = self._lake.load_table(identifier)
        if shape.evolved_to is not None:
            _evolve(table, shape.evolved_to)
        if shape.sorted_by:
            with table.update_sort_order() as order:
                order.asc("i").desc("s")
        if shape.branch:
            table.refresh().create_branch("stated")
            name += ".branch_stated"
        self.sql(f"INSERT INTO {name} SELECT * FROM {self.now} WHERE id > 2 OR id IS NULL")
        return name

    def _rows(self, name: str) -> list[str]:
        return sorted(repr(tuple(row)) for row in self.sql(f"SELECT * FROM {name}").collect())

    def _expected(self, one: Statement) -> list[Exception]:
        """Do it to Spark's own table; how it may fail, after which the table is what it was."""
        # Spark's own row group filters lose rows of October 1582, and those of negative zero
        self.sql("SET spark.sql.parquet.filterPushdown = false")
        checks = [one.check.replace("{t}", self.now).format(now=self.now)] if one.check else []
        failures = [
            failure
            for failure in (self._failure(self._steps(one)), self._failure(checks))
            if failure is not None
        ]
        self.sql("RESET spark.sql.parquet.filterPushdown")
        if one.steps is not None and not failures:
            self.now, self.next = self.next, self.now
        return [one for one in failures if isinstance(one, AnalysisException)] or failures

    def _steps(self, one: Statement) -> list[str]:
        if one.steps is None:
            return [one.text.replace("{t}", self.now)]
        steps = one.steps or ["INSERT INTO {next} SELECT * FROM {now} WHERE false"]
        steps = [steps[0].replace("INSERT INTO", "INSERT OVERWRITE", 1), *steps[1:]]
        return [
            step.replace("{t}", self.now).format(now=self.now, next=self.next) for step in steps
        ]

    def _tried(self, one: Statement, table: str) -> Exception | None:
        return self._failure([one.text.replace("{t}", table)])

    def _failure(self, statements: list[str]) -> Exception | None:
        try:
            for statement in statements:
                self.sql(statement).collect()
        except FAILURES as failure:
            return failure
        return None


def _evolve(table: Any, terms: tuple[str, ...]) -> None:
    """Give a table another partition spec."""
    with table.update_partition_spec() as spec:
        for field in table.spec().fields:
            spec.remove(field.name)
        for term in terms:
            spec.add(term.replace("s(", "("))


def condition(failure: Exception) -> str:
    """The name of Spark's error condition, of the innermost cause that has one."""
    java = failure.java_exception if isinstance(failure, Py4JJavaError) else failure._origin
    found = failure.getCondition() if isinstance(failure, PySparkException) else None
    gateway = SparkContext._gateway
    while java is not None and found is None:
        if is_instance_of(gateway, java, "org.apache.spark.SparkThrowable"):
            found = java.getCondition()
        java = java.getCause()
    # what the generator raises where rows of the source repeat
    return "MERGE_CARDINALITY_VIOLATION" if found == "USER_RAISED_EXCEPTION" else str(found)


def _failures_differ(found: Exception | None, expected: list[Exception]) -> str:
    """How a failure differs from those that may be; nothing if it does not."""
    if found is None:
        return f"only in Spark: {expected[0]}" if expected else ""
    if not expected:
        return f"only here: {found}"
    if any(_kind(one) == _kind(found) for one in expected):
        return ""
    return f"here {_kind(found)}: {found}\nin Spark {_kind(expected[0])}: {expected[0]}"


def _kind(failure: Exception) -> tuple[bool, str]:
    return isinstance(failure, AnalysisException), condition(failure)
