"""The oracle: rows that Spark keeps in memory, changed by the INSERTs that stand for a statement.

Each INSERT is analyzed about an empty Parquet table, so that store assignment, defaults and errors
are Spark's own; what it would write is collected instead of written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.spark_statements.generator import Statement
from tests.spark_statements.vocabulary import TYPES

TARGET = "spark_catalog.default.stated_target"
NOW = "stated_now"
COLUMNS = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
# what fails in a subquery reaches PySpark as Java's own exception, from any table
FAILURES = (PySparkException, Py4JJavaError)
# rows this few are changed before a method of their own would be compiled
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.adaptive.enabled": "false",
}


class OwnRows:
    """Rows of views in memory, of which `NOW` is changed.

    Args:
        session: where it happens.
        shown: the sessions that see the views, `session` among them.
        folder: an empty folder.
    """

    def __init__(self, session: SparkSession, shown: list[SparkSession], folder: Path) -> None:
        self._session, self._shown = session, shown
        self._java: Any = session._jsparkSession
        self._jvm: Any = session._jvm
        # found once: each look-up of a class goes through all of Spark's JARs
        catalyst = self._jvm.org.apache.spark.sql.catalyst
        self._relation = catalyst.plans.logical.LocalRelation
        self._no_stream = self._jvm.scala.Option.empty()
        self._list = self._jvm.java.util.ArrayList
        self._to_seq = self._jvm.org.apache.spark.api.python.PythonUtils.toSeq
        self._java_session = self._jvm.org.apache.spark.sql.classic.SparkSession
        self._of_rows = self._jvm.org.apache.spark.sql.classic.Dataset.ofRows
        self._defaults: dict[str, str] = {}
        self._told: dict[str, str] = {}
        self._rows: list[str] | None = None
        session.sql(f"DROP TABLE IF EXISTS {TARGET}")
        session.sql(f"CREATE TABLE {TARGET} ({COLUMNS}) USING parquet LOCATION '{folder}/target'")
        schema = session.table(TARGET)._jdf.schema()
        self._columns = catalyst.types.DataTypeUtils.toAttributes(schema)

    def drop(self) -> None:
        """Drop the table, of which all sessions know, and what tasks would still look up."""
        for key in self._told:
            self._session.sparkContext.setLocalProperty(key, None)
        self._session.sql(f"DROP TABLE {TARGET}")

    def begin(self, settings: dict[str, str], defaults: dict[str, str]) -> None:
        """From here on the session's settings and the columns' defaults are these."""
        self._told = settings | INTERPRETED
        for key, value in self._told.items():
            self._session.conf.set(key, value)
            # where tasks look, as no statement of Spark's runs them
            self._session.sparkContext.setLocalProperty(key, value)
        if defaults == self._defaults:
            return
        for column in {**self._defaults, **defaults}:
            told = f"SET DEFAULT {defaults[column]}" if defaults else "DROP DEFAULT"
            self._session.sql(f"ALTER TABLE {TARGET} ALTER COLUMN {column} {told}")
        self._defaults = defaults

    def keep(self, view: str, query: str) -> None:
        """Have a view show a query's rows, of the columns that all tables have."""
        self._show(view, self._written([f"INSERT INTO {TARGET} {query}"]))

    def rows(self) -> list[str]:
        """Those of `NOW`, sorted."""
        if self._rows is None:
            self._rows = sorted_rows(self._session.table(NOW))
        return self._rows

    def change(self, one: Statement) -> list[Exception]:
        """Do it to `NOW`; how it may fail, after which the rows are what they were."""
        made: list[Any] = []
        checked = [one.check] if one.check else []
        failures = [
            failure
            for failure in (
                failure_of(lambda: made.append(self._written(_steps(one)))),
                failure_of(lambda: [self._session.sql(_told(text)).collect() for text in checked]),
            )
            if failure is not None
        ]
        if not failures:
            self._show(NOW, made[0])
        return [one for one in failures if isinstance(one, AnalysisException)] or failures

    def _written(self, inserts: list[str]) -> Any:
        """The rows that INSERTs into `TARGET` would write, as Spark's own relation."""
        with self._active():
            frames = [self._frame(self._java, self._analyzed(one).query()) for one in inserts]
            every = reduce(lambda one, other: one.unionAll(other), frames)
            rows = self._list()
            for row in every.queryExecution().executedPlan().executeCollect():
                rows.add(row)
        return self._relation(self._columns, self._to_seq(rows), False, self._no_stream)

    def _analyzed(self, statement: str) -> Any:
        state = self._java.sessionState()
        parsed = state.sqlParser().parsePlan(statement)
        every_mode = getattr(state, "executePlan$default$2")()
        return state.executePlan(parsed, every_mode).analyzed()

    @contextmanager
    def _active(self) -> Iterator[None]:
        """What parses and plans asks for the settings of the session that is active."""
        java = self._java_session
        before = java.getActiveSession()
        java.setActiveSession(self._java)
        try:
            yield
        finally:
            if before.isDefined():
                java.setActiveSession(before.get())
            else:
                java.clearActiveSession()

    def _show(self, view: str, relation: Any) -> None:
        for session in self._shown:
            self._frame(session._jsparkSession, relation).createOrReplaceTempView(view)
        if view == NOW:
            self._rows = None

    def _frame(self, session: Any, plan: Any) -> Any:
        return self._of_rows(session, plan)


def sorted_rows(frame: DataFrame) -> list[str]:
    """All rows, so that NaN is NaN and zero is not minus zero."""
    return sorted(repr(tuple(row)) for row in frame.collect())


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


def failures_differ(found: Exception | None, expected: list[Exception]) -> str:
    """How a failure differs from those that may be; nothing if it does not."""
    if found is None:
        return f"only in Spark: {expected[0]}" if expected else ""
    if not expected:
        return f"only here: {found}"
    if any(_kind(one) == _kind(found) for one in expected):
        return ""
    return f"here {_kind(found)}: {found}\nin Spark {_kind(expected[0])}: {expected[0]}"


def failure_of(action: Callable[[], object]) -> Exception | None:
    """What an action of Spark's raises."""
    try:
        action()
    except FAILURES as failure:
        return failure
    return None


def _kind(failure: Exception) -> tuple[bool, str]:
    return isinstance(failure, AnalysisException), condition(failure)


def _steps(one: Statement) -> list[str]:
    """The statement as INSERTs into `TARGET`, which is empty before."""
    if one.steps is None:
        return [f"INSERT INTO {TARGET} SELECT * FROM {NOW}", one.text.replace("{t}", TARGET)]
    steps = one.steps or ["INSERT INTO {next} SELECT * FROM {now} WHERE false"]
    return [_told(step) for step in steps]


def _told(text: str) -> str:
    return text.replace("{t}", NOW).format(now=NOW, next=TARGET)
