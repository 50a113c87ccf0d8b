"""A scan of one snapshot: plan it, or read it as Arrow or Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
from pyiceberg.schema import Schema

from lakehouse.arrow.reader import ReadRequest, read_table, read_tasks
from lakehouse.engines import engine_for
from lakehouse.errors import InvalidInputError
from lakehouse.expressions.bound import TRUE
from lakehouse.scan.listeners import ENGINE_ARROW, Listeners
from lakehouse.scan.planner import ScanPlan, plan_appends, plan_scan, schema_of, snapshot_of
from lakehouse.scan.request import ScanRequest
from lakehouse.spec.arrow_types import schema_to_arrow
from lakehouse.spec.properties import NAME_MAPPING
from lakehouse.storage.protocol import Storage


@dataclass(frozen=True)
class TableScan:
    """Rows of one snapshot that match a filter; nothing is read before it is asked for.

    Attributes:
        name: the table's dotted name.
        request: snapshot, filter and projection as data.
        storage: where the files are.
        appended_after: only rows that appends added after this snapshot; None for all rows.
        listeners: told once, when the scan is planned.
    """

    name: str
    request: ScanRequest
    storage: Storage
    appended_after: int | None = None
    listeners: Listeners = field(default_factory=Listeners, repr=False, compare=False)

    @cached_property
    def _plan(self) -> ScanPlan:
        if self.appended_after is not None:
            plan = plan_appends(self.request, self.appended_after, self.storage)
        else:
            plan = plan_scan(self.request, self.storage)
        self.listeners.planned(self.name, plan.report, engine=ENGINE_ARROW)
        return plan

    def plan(self) -> ScanPlan:
        """The files to read: `.files`, `.tasks`, `.report` (what was read, what was skipped and why)."""
        return self._plan

    def to_arrow(self) -> pa.Table:
        """All matching rows."""
        return read_table(self._plan.tasks, self._read_request(), self.storage)

    def to_batches(self) -> pa.RecordBatchReader:
        """Matching rows as a stream with bounded memory; DuckDB, Polars and DataFusion read it as it is."""
        schema = schema_to_arrow(self._plan.schema)
        return pa.RecordBatchReader.from_batches(
            schema, read_tasks(self._plan.tasks, self._read_request(), self.storage)
        )

    def to_spark(self, spark: object) -> object:
        """A Spark DataFrame over the snapshot; every query that uses it is planned again with its own filters.

        Raises:
            InvalidInputError: `spark` is not a SparkSession, or this is a scan of appends.
        """
        if self.appended_after is not None:
            raise InvalidInputError(
                f"{self.name}: Spark reads whole snapshots; read a scan of appends with to_batches()"
            )
        engine = engine_for(spark)
        if engine is None:
            raise InvalidInputError(f"to_spark takes a SparkSession, not {type(spark).__name__}")
        return engine.read(self.name, self.request, self.storage, spark, self.listeners)

    def count(self) -> int:
        """How many rows match; from metadata alone when no file needs to be opened."""
        rows = 0
        unsure = []
        for task in self._plan.tasks:
            if task.deletes or task.residual != TRUE:
                unsure.append(task)
            else:
                rows += task.data_file.record_count
        for batch in read_tasks(unsure, self._read_request(), self.storage):
            rows += batch.num_rows
        return rows

    def _read_request(self) -> ReadRequest:
        return read_request(self.request, self._plan.schema)


def columns(select: Sequence[str] | str | None) -> Sequence[str] | None:
    """A projection as a sequence: one name, several, or None for all of them."""
    return [select] if isinstance(select, str) else select


def read_request(request: ScanRequest, schema: Schema) -> ReadRequest:
    """What the Arrow reader has to know to return the columns of `schema`; the filter is in the residuals of the tasks."""
    metadata = request.metadata
    return ReadRequest(
        schema=schema,
        table_schema=schema_of(request, snapshot_of(request)),
        older_schemas=metadata.schemas,
        specs=metadata.specs(),
        name_mapping=metadata.properties.get(NAME_MAPPING),
    )
