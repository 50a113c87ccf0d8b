"""Evaluates the evidence of statements on data.

Added and removed files are enough where the check allows it; else the whole table is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.data.reading.scan_reader import read_tasks
from lakehouse.errors import InvalidInputError, LakehouseError
from lakehouse.lake import Lakehouse
from lakehouse.scan.planner import ScanRequest, plan_scan
from lakehouse.semantics.binding import split_column
from lakehouse.semantics.evidence import INCREMENTAL, Check
from lakehouse.semantics.facts import Change
from lakehouse.semantics.judgement import Extent, Outcome, Verdict, newest_verdict
from lakehouse.semantics.measures import (
    MEASURE,
    Measure,
    combined,
    measure,
    query_verdict,
    references_verdict,
    unique_verdict,
    verdict,
)
from lakehouse.semantics.statements import Draft
from lakehouse.spec.types.arrow_types import schema_to_arrow
from lakehouse.table import Table
from lakehouse.table.scan import read_request


class EvidenceRunner:
    """Runs checks against a lakehouse.

    Args:
        lake: what queries run on.
        tables: the versions to read, by dotted name.
    """

    def __init__(self, lake: Lakehouse, tables: Mapping[str, Table]) -> None:
        self._lake = lake
        self._tables = tables

    def run(
        self,
        draft: Draft,
        extent: Extent,
        changes: Mapping[str, Change],
        last: Mapping[str, Any],
        since: Mapping[str, int | None],
    ) -> Verdict:
        """What the data says.

        Args:
            draft: under present names, with evidence.
            extent: CHANGED_FILES to go from the measure in `last`, when there is one.
            changes: since the last verification, by dotted name.
            last: what the last verification observed.
            since: its snapshots, by dotted name.

        Returns:
            HOLDS or FAILS; evidence that cannot run fails, with the error as reason.
        """
        check = draft.evidence
        if check is None:
            raise InvalidInputError(f"{draft.statement_id} has no evidence to run")
        try:
            if check.name == "query":
                # pyarrow's datasets import pandas, for which most evidence has no use
                from lakehouse.queries import QueryEngine  # noqa: PLC0415

                return query_verdict(
                    QueryEngine(self._lake, self._lake.environment).run(check.arguments["sql"])
                )
            if check.name == "unique":
                return unique_verdict(
                    check,
                    self._whole(
                        draft.table, check.arguments["columns"], check.arguments.get("where")
                    ),
                )
            if check.name == "references":
                return self._references(draft, check)
            if check.name not in INCREMENTAL:
                return self._newest(draft, check)
            measured = last.get(MEASURE, {}) if extent is Extent.CHANGED_FILES else {}
            return self._incremental(draft, check, changes, measured, since)
        except LakehouseError as error:
            if error.retryable:
                raise
            return Verdict(Outcome.FAILS, f"its evidence does not run: {error.message}")

    def _incremental(
        self,
        draft: Draft,
        check: Check,
        changes: Mapping[str, Change],
        measured: Mapping[str, Measure],
        since: Mapping[str, int | None],
    ) -> Verdict:
        sides = {"own": (draft.table, check.arguments.get("column"), "where")}
        if "to" in check.arguments:
            table, column = self._other(check.arguments["to"], draft.table)
            sides["to"] = (table, column, "to_where")
        measures = {}
        for side, (name, column, where) in sides.items():
            select = [] if column is None else [split_column(column, name, self._tables)[1]]
            condition = check.arguments.get(where)
            change = changes[name]
            if side not in measured or change.added is None or change.removed is None:
                if side in measured and change.same_rows:
                    measures[side] = dict(measured[side])
                    continue
                measures[side] = measure(check, self._read(name, select, condition))
                continue
            added = combined(
                measured[side], measure(check, self._read(name, select, condition, change.added))
            )
            gone = measure(check, self._read(name, select, condition, change.removed, since[name]))
            measures[side] = combined(added, gone, -1)
        judged = verdict(check, measures["own"], measures.get("to"))
        return Verdict(
            judged.outcome,
            judged.reason,
            observed={**_shown(measures["own"]), MEASURE: measures},
        )

    def _references(self, draft: Draft, check: Check) -> Verdict:
        to_table, to_column = self._other(check.arguments["to"], draft.table)
        column = split_column(check.arguments["column"], draft.table, self._tables)[1]
        values = self._whole(draft.table, [column], check.arguments.get("where")).column(0)
        keys = self._whole(to_table, [str(to_column)], check.arguments.get("to_where")).column(0)
        return references_verdict(check, values, keys)

    def _newest(self, draft: Draft, check: Check) -> Verdict:
        """The newest value in the rows, for columns without bounds in metadata; judged alike."""
        column = split_column(check.arguments["column"], draft.table, self._tables)[1]
        newest = pc.max(self._whole(draft.table, [column], None).column(0)).as_py()
        if newest is None:
            return Verdict(Outcome.FAILS, "there is no value")
        return newest_verdict(check, newest, self._lake.environment.now_ms())

    def _other(self, to: str, table: str) -> tuple[str, str | None]:
        return (to, None) if to in self._tables else split_column(to, table, self._tables)

    def _whole(self, name: str, paths: Collection[str], where: str | None) -> pa.Table:
        parts = list(self._read(name, list(paths), where))
        if parts:
            return pa.Table.from_batches(parts)
        kinds = schema_to_arrow(self._tables[name].schema())
        return pa.table({path: pa.array([], _kind(kinds, path)) for path in paths})

    def _read(
        self,
        name: str,
        paths: list[str],
        where: str | None,
        files: Collection[str] | None = None,
        snapshot_id: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Columns by path, in that order, in the current schema; of these files if given."""
        if files is not None and not files:
            return
        table = self._tables[name]
        tops = list(dict.fromkeys(path.split(".")[0] for path in paths))
        request = ScanRequest(
            metadata=table.metadata,
            snapshot_id=snapshot_id,
            current_schema=True,
            where=where,
            select=tops or table.schema().column_names[:1],
        )
        plan = plan_scan(request, table.storage)
        tasks = [task for task in plan.tasks if files is None or task.data_file.file_path in files]
        for batch in read_tasks(tasks, read_request(request, plan.schema), table.storage):
            if paths:
                yield pa.RecordBatch.from_arrays([_reach(batch, path) for path in paths], paths)
            else:
                yield batch


def _reach(batch: pa.RecordBatch, path: str) -> pa.Array:
    """A column, or a field of a struct."""
    top, *inner = path.split(".")
    column = batch.column(top)
    return pc.struct_field(column, inner) if inner else column


def _kind(schema: pa.Schema, path: str) -> pa.DataType:
    """The type of a column, or of a field of a struct."""
    top, *inner = path.split(".")
    kind = schema.field(top).type
    for name in inner:
        kind = kind.field(name).type
    return kind


def _shown(measure: Measure) -> dict[str, Any]:
    return {key: value for key, value in measure.items() if not isinstance(value, Mapping)}
