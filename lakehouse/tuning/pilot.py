"""The files that would be rewritten first, tried in memory: what a sample cannot tell decides here.

How well sorted rows compress depends on how dense their keys are, and in a sample of two in a
hundred rows they are fifty times sparser. So before a layout is adopted, some files are read whole
and written by each of the last candidates. Nothing is written to the warehouse.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from lakehouse.data.reading.scan_reader import ReadRequest, RowReader, read_table
from lakehouse.expressions.bound_filter import TRUE, Bound
from lakehouse.scan.planner import ScanRequest, plan_scan
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.table_properties import TableProperties
from lakehouse.table import Table
from lakehouse.tuning.layouts import (
    GROUP_ROWS,
    LEVEL,
    Layout,
    Measured,
    Query,
    QueryCost,
    confirmed,
    loss,
    slowdown,
)
from lakehouse.tuning.trial import (
    Meter,
    Trial,
    choices_of,
    cost_today,
    query_of,
    share_of,
    width_of,
)

_MOST_BYTES, _MOST_ROWS = 64 << 20, 1_000_000
_MOST_ORDERS, _MOST_EXTENDED = 6, 3
_ENCODED_ROWS = 65_536
_LARGER_WEIGHT = 3.0


def confirm(table: Table, trial: Trial) -> Trial:
    """The trial with the layout that suits the first files best; refused where none suits them.

    Raises:
        StorageError, NoSuchFileError, CorruptMetadataError: the files cannot be read.
    """
    if trial.proposed is None or trial.today is None or not trial.verdict.adopt:
        return trial
    start = time.process_time()
    pilot = Pilot.of(table, trial.workload)
    chosen = pilot.best(trial.proposed.layout, _orders(trial, pilot))
    spent = trial.trial_ms + (time.process_time() - start) * 1000
    verdict = confirmed(chosen, pilot.now, trial.workload, trial.verdict)
    grown = trial.live_bytes / max(1.0, pilot.now.bytes)
    proposed = replace(chosen, bytes=chosen.bytes * grown, files=math.ceil(chosen.files * grown))
    # rows cost what they do in whole files, today and as proposed
    today = replace(trial.today, row_ns=pilot.now.row_ns, write_ns=pilot.now.write_ns)
    return replace(trial, today=today, proposed=proposed, verdict=verdict, trial_ms=spent)


def _orders(trial: Trial, pilot: Pilot) -> list[tuple[str, ...]]:
    """Sort orders: the best of the sample, each column that queries filter by, today's."""
    today, proposed = trial.today, trial.proposed
    if today is None or proposed is None:
        raise AssertionError("only a proposal is confirmed")
    parts = proposed.layout.partition_by
    ranked = sorted(
        (measured for measured in trial.tried if measured.layout.partition_by == parts),
        key=lambda measured: loss(measured, today, trial.workload),
    )
    best = [proposed.layout.sort_by, *(measured.layout.sort_by for measured in ranked)]
    orders = list(dict.fromkeys(best))[:_MOST_ORDERS]
    orders += [(term,) for term in pilot.filtered]
    return list(dict.fromkeys([*orders, today.layout.sort_by, ()]))


class Pilot(Meter):
    """Measures layouts on whole files of a table.

    Args:
        metadata: of the table.
        tasks: the files.
        rows: theirs.
        workload: queries and their filters, bound.
        costs: what the queries read of the files today.

    Attributes:
        now: the files as they are.
        filtered, others: sort terms of columns that queries filter by, and of others.
    """

    def __init__(
        self,
        metadata: TableMetadata,
        tasks: Sequence[FileScanTask],
        rows: pa.Table,
        workload: Sequence[tuple[Query, Bound]],
        costs: Sequence[QueryCost],
    ) -> None:
        files = [task.data_file for task in tasks]
        live = sum(file.file_size_in_bytes for file in files)
        count = sum(file.record_count for file in files)
        super().__init__(metadata, [rows], files, live_bytes=live, rows=count, workload=workload)
        self._queries_of = tuple(query for query, _ in workload)
        self.now = self.today(len(files), costs)
        choices = choices_of(metadata, rows.slice(0, _ENCODED_ROWS), None, workload, live, count)
        self.filtered, self.others, self._choices = choices.filtered, choices.others, choices

    @classmethod
    def of(cls, table: Table, queries: Sequence[Query]) -> Pilot:
        """The files that came first, as many as fit into memory.

        Raises:
            StorageError, NoSuchFileError, CorruptMetadataError: they cannot be read.
        """
        metadata = table.metadata
        request = ScanRequest(metadata=metadata, current_schema=True, include_metrics=True)
        tasks = sorted(
            plan_scan(request, table.storage).tasks,
            key=lambda task: (task.sequence_number, task.data_file.file_path),
        )
        size = rows = 0
        chosen: list[FileScanTask] = []
        for task in tasks:
            size, rows = (
                size + task.data_file.file_size_in_bytes,
                rows + task.data_file.record_count,
            )
            if chosen and (size > _MOST_BYTES or rows > _MOST_ROWS):
                break
            whole = replace(task, start=0, length=task.data_file.file_size_in_bytes)
            chosen.append(whole)
        schema = metadata.schema()
        data = read_table(chosen, ReadRequest.of(metadata, schema), table.storage)
        bound_queries = [
            query_of(query.where, schema, query.runs, query.columns) for query in queries
        ]
        paths = frozenset(task.data_file.file_path for task in chosen)
        costs = [cost_today(table, query, where, paths) for query, where in bound_queries]
        return cls(metadata, chosen, data.combine_chunks(), bound_queries, costs)

    def best(self, proposed: Layout, orders: Sequence[tuple[str, ...]]) -> Measured:
        """Of a proposal with other orders, row groups, encodings, filters and levels the best."""
        size = {
            name: text for name, text in proposed.properties.items() if name == GROUP_ROWS
        } or self._choices.probe()
        parts = replace(proposed, properties=size)
        chosen = self._least(replace(parts, sort_by=order) for order in orders)
        for _ in range(_MOST_EXTENDED):
            layout = chosen.layout
            left = [
                column for column in (*self.filtered, *self.others) if column not in layout.sort_by
            ]
            longer = [
                replace(layout, sort_by=(*layout.sort_by, column)) for column in left[:_MOST_ORDERS]
            ]
            lengthened = self._least(iter(longer), chosen)
            if lengthened is chosen:
                break
            chosen = lengthened
        bare = replace(chosen.layout, properties={})
        chosen = self._least(
            (bare.with_properties(group) for group in self._choices.groups()), chosen
        )
        chosen = self._least(
            (chosen.layout.with_properties(blooms) for blooms in self._choices.blooms()), chosen
        )
        levels = self._choices.levels()
        return self._least((chosen.layout.with_properties(level) for level in levels), chosen)

    def _least(self, layouts: Iterator[Layout], start: Measured | None = None) -> Measured:
        least = start
        for layout in layouts:
            encoded = layout
            if LEVEL not in layout.properties:
                encoded = layout.with_properties(self.encodings(layout))
            measured = self.measure(encoded)
            if least is None or self._worth(measured) < self._worth(least):
                least = measured
        if least is None:
            raise AssertionError("there is always today's order")
        return least

    def _worth(self, measured: Measured) -> float:
        """Its loss; what makes the table larger or a query slower weighs more."""
        larger = max(0.0, math.log(max(measured.bytes, 1.0) / max(self.now.bytes, 1.0)))
        worse = larger + slowdown(measured, self.now)
        return loss(measured, self.now, self._queries_of) + _LARGER_WEIGHT * worse

    def measure(self, layout: Layout) -> Measured:
        """Bytes, files and queries of the files' rows in a layout."""
        rows = self.arranged(layout)
        _, write_ns, (data, file, storage) = self._written(rows, layout.properties)
        size = len(data) * rows.num_rows / max(1, file.record_count)
        schema = self._metadata.schema()
        reader = RowReader(ReadRequest(schema=schema, table_schema=schema), storage)
        groups = max(1, len(file.split_offsets or (0,)))
        costs = []
        for query, where in self._workload:
            task = FileScanTask.whole(file)
            opened = reader.open(task if where == TRUE else replace(task, residual=where))
            row_groups = opened.row_groups
            costs.append(
                QueryCost(
                    files=1,
                    footers=groups,
                    groups=len(row_groups),
                    rows=sum(group.rows for group in row_groups),
                    share=share_of(query, schema),
                    width=width_of(schema),
                    blooms=opened.bloom_filters,
                )
            )
        target = TableProperties(self._metadata.properties).target_file_size_bytes
        return Measured(
            layout=layout,
            bytes=size,
            files=math.ceil(size / target),
            row_ns=self._row_ns_of(data),
            write_ns=write_ns,
            queries=tuple(costs),
        )

    def _runs(self, layout: Layout) -> Mapping[str, float]:  # noqa: ARG002
        """Nothing is left to predict."""
        return {}

    def encodings(self, layout: Layout) -> dict[str, str]:
        """For each column the encoding that makes some rows in the middle smallest."""
        rows = self.arranged(layout)
        return self._encodings(
            rows.slice(max(0, (rows.num_rows - _ENCODED_ROWS) // 2), _ENCODED_ROWS), layout
        )
