"""A lakehouse table and Spark's own rows, changed by the same statements."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from lakehouse.lake import load_catalog
from lakehouse.spark import attach
from tests.spark_statements.generator import FIRST_OF_EACH_ID, Generator
from tests.spark_statements.own_rows import (
    NOW,
    OwnRows,
    condition,
    failure_of,
    failures_differ,
    sorted_rows,
)
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
OTHER = "stated_other"
FIRST = "stated_first"
# Where it is not excluded, what is asked of the other table alone is answered while planning.
EVALUATED_EARLY = "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"


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
            "spark.sql.optimizer.excludedRules": chance.choice(["", EVALUATED_EARLY]),
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
    """Lakehouse tables in one session, Spark's own rows in another.

    Args:
        spark: whose sessions are made.
        folder: an empty folder for all tables.
    """

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._session, oracle = spark.newSession(), spark.newSession()
        self._lake = load_catalog(f"file://{folder}/stated")
        for session in (self._session, oracle):
            attach(session, self._lake, name="stated")
        self._session.sql("CREATE NAMESPACE stated.raw")
        self.own = OwnRows(oracle, [oracle, self._session], folder)
        self._numbers = 0

    def one_table(self, seed: int, statements: int, tally: Tally) -> None:
        """Statements on a new table, up to the first after which it is not what Spark's is."""
        shape = Shape(seed)
        for key, value in shape.settings.items():
            self._session.conf.set(key, value)
        self.own.begin(shape.settings, shape.defaults)
        generator = shape.generator()
        table = self._made(shape, generator)
        for _ in range(statements):
            one = generator.statement()
            tally.statements[one.kind] += 1
            text = one.text.replace("{t}", table)
            expected = self.own.change(one)
            found = failure_of(lambda text=text: self._session.sql(text))
            difference = failures_differ(found, expected)
            if not difference:
                here, there = sorted_rows(self._session.table(table)), self.own.rows()
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
        self._session.sql(shape.create(name))
        self.own.keep(OTHER, generator.rows(8))
        first = FIRST_OF_EACH_ID.replace("{0}", OTHER)
        self.own.keep(FIRST, f"SELECT {', '.join(TYPES)} FROM {first}")
        self.own.keep(NOW, generator.rows(10))
        self._session.sql(f"INSERT INTO {name} SELECT * FROM {NOW} WHERE id <= 2")
        table = self._lake.load_table(identifier)
        if shape.evolved_to is not None:
            _evolve(table, shape.evolved_to)
        if shape.sorted_by:
            with table.update_sort_order() as order:
                order.asc("i").desc("s")
        if shape.branch:
            table.refresh().create_branch("stated")
            name += ".branch_stated"
        rest = f"SELECT * FROM {NOW} WHERE id > 2 OR id IS NULL"
        self._session.sql(f"INSERT INTO {name} {rest}")
        return name


def _evolve(table: Any, terms: tuple[str, ...]) -> None:
    """Give a table another partition spec."""
    with table.update_partition_spec() as spec:
        for field in table.spec().fields:
            spec.remove(field.name)
        for term in terms:
            spec.add(term.replace("s(", "("))
