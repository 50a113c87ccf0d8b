"""A relation whose files Spark asks us for while it plans each query, with the query's own filters.

One object of this process answers for a relation; it holds the table version and the snapshot, so a relation shows the same
rows for as long as it lives: in cached plans, in other threads, after later commits.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lakehouse.errors import UnsupportedFeatureError
from lakehouse.expressions.bind import bind
from lakehouse.expressions.bound import conjunction
from lakehouse.scan.listeners import ENGINE_SPARK, Listeners
from lakehouse.scan.planner import ScanPlan, plan_scan
from lakehouse.scan.request import ScanRequest
from lakehouse.spark.connect import PARQUET_OPTIONS
from lakehouse.spark.filters import translate_filters
from lakehouse.spark.helper import planned_files
from lakehouse.spark.locations import spark_location
from lakehouse.spec.data_file import DataFile
from lakehouse.storage.protocol import Storage

logger = logging.getLogger(__name__)


class FilePlanner:
    """Answers Spark's question "which files, with these filters?" (`java.util.function.Function`, called by the JVM).

    Args:
        name: the table, for messages.
        request: version, snapshot and filter; every question narrows its filter.
        schema: the schema that the relation shows.
        storage: where the metadata is.
        choose: which files of a plan belong to this relation, as `encode_answer` takes them.
        listeners: told of every plan.
    """

    def __init__(
        self,
        name: str,
        request: ScanRequest,
        schema: Schema,
        storage: Storage,
        choose: Callable[[ScanPlan], pa.Table],
        listeners: Listeners,
    ) -> None:
        self._name = name
        self._request = request
        self._schema = schema
        self._storage = storage
        self._choose = choose
        self._listeners = listeners

    def apply(self, filters: str) -> str:
        """The answer that `PlannedFiles.java` parses. An exception must not cross as one: py4j would lose what it says."""
        try:
            return encode_answer(self._choose(self._plan(filters)))
        except Exception as error:
            logger.exception("planning %s failed", self._name)
            return f"E{type(error).__name__}: {error}"

    def _plan(self, filters: str) -> ScanPlan:
        request = self._request
        own = bind(request.where, self._schema, case_sensitive=request.case_sensitive)
        where = conjunction((own, bind(translate_filters(filters, self._schema), self._schema)))
        plan = plan_scan(replace(request, where=where), self._storage)
        parquet_only(self._name, plan)
        logger.debug("planned %s for Spark: %s", self._name, plan.report)
        self._listeners.planned(self._name, plan.report, engine=ENGINE_SPARK)
        return plan

    class Java:
        """The interface py4j implements with this class."""

        implements = ("java.util.function.Function",)


class FixedFiles:
    """Answers every question with the same files (`java.util.function.Function`, called by the JVM)."""

    def __init__(self, files: pa.Table) -> None:
        self._answer = encode_answer(files)

    def apply(self, _filters: str) -> str:
        """The files, whatever the filters."""
        return self._answer

    class Java:
        """The interface py4j implements with this class."""

        implements = ("java.util.function.Function",)


def parquet_only(name: str, plan: ScanPlan) -> None:
    """Raise UnsupportedFeatureError when a planned file is not Parquet: Spark's reader would take it for a damaged one."""
    others = plan.formats() - {"parquet"}
    if others:
        raise UnsupportedFeatureError(
            f"{name} holds {', '.join(sorted(others))} files, which Spark's Parquet reader cannot read. Compact it first: "
            f"`lakehouse compact {name}` turns them into Parquet",
            table=name,
        )


def encode_answer(files: pa.Table) -> str:
    """`F`, rows in all, NUL, the common prefix, NUL, then suffix NUL size NUL for each file: NUL is what no location holds.

    Args:
        files: columns `file_path`, `file_size_in_bytes` and `record_count`.
    """
    if not files.num_rows:
        return "F0\0\0"
    rows = pc.sum(files.column(2)).as_py()
    paths = files.column(0).combine_chunks()
    ends = pc.min_max(paths)
    prefix = os.path.commonprefix([ends["min"].as_py(), ends["max"].as_py()])
    if "://" not in prefix:
        paths = pa.array([spark_location(path) for path in paths.to_pylist()], pa.string())
        prefix = ""
    suffixes = pc.utf8_slice_codeunits(paths, len(prefix))
    lines = pc.binary_join_element_wise(
        suffixes, files.column(1).combine_chunks().cast(pa.string()), "\0"
    )
    head = spark_location(prefix) if prefix else ""
    return f"F{rows}\0{head}\0" + "\0".join(lines.to_pylist()) + "\0"


def sized(files: Iterable[DataFile]) -> pa.Table:
    """Location, size and rows of files, for `encode_answer`."""
    listed = list(files)
    return pa.table(
        {
            "file_path": pa.array([one.file_path for one in listed], pa.string()),
            "file_size_in_bytes": pa.array([one.file_size_in_bytes for one in listed], pa.int64()),
            "record_count": pa.array([one.record_count for one in listed], pa.int64()),
        }
    )


@dataclass(frozen=True, slots=True)
class Estimate:
    """What Spark's optimizer is told of a relation before it is filtered; afterwards bytes and rows are those of the files left.

    Attributes:
        size_in_bytes: of all files.
        rows: in them; None when nobody knows.
        distinct: different values by column, from the statistics of the snapshot; used with `spark.sql.cbo.enabled`.
    """

    size_in_bytes: int
    rows: int | None = None
    distinct: Mapping[str, int] = field(default_factory=dict)


def planned_relation(
    spark: SparkSession,
    planner: FilePlanner | FixedFiles,
    *,
    name: str,
    root: str,
    schema: StructType,
    estimate: Estimate,
) -> DataFrame:
    """A DataFrame over the files that `planner` answers with.

    Args:
        spark: a session with a JVM of its own.
        planner: answers for this relation alone.
        name: shown in plans and errors.
        root: location shown as the relation's path.
        schema: the Spark schema, with field ids in its metadata.
        estimate: of the unfiltered relation.
    """
    facts = {
        "name": name,
        "root": spark_location(root),
        "bytes": estimate.size_in_bytes,
        "rows": -1 if estimate.rows is None else estimate.rows,
        "distinct": dict(estimate.distinct),
        "schema": schema.json(),
        "options": dict(PARQUET_OPTIONS),
    }
    found = planned_files(spark).relation(spark._jsparkSession, planner, json.dumps(facts))
    return DataFrame(found, spark)
