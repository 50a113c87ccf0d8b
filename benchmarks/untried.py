"""What `lakehouse tune` does not try, measured on what it tuned: `benchmarks.tune --untried`.

Each table is written again in the layout that was chosen, and with one thing more: z-order of the
columns that queries filter by, other pages, Bloom filters of Parquet, no metrics of columns that no
query filters by. Ratios of bytes and of the queries' processor time to the same without it.

Our reader opens no Bloom filter. So what a filter could save at most is computed: row groups that
were opened, and hold no row that a query finds, would not have been. The same bounds our key
filters, which are of files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count

import pyarrow as pa

import lakehouse as lh
from lakehouse.data.reading.scan_reader import ReadRequest, RowReader
from lakehouse.expressions.bound_filter import columns
from lakehouse.spec.types.arrow_types import schema_to_arrow
from lakehouse.tuning.trial import check_queries, cost_today, layout_of

PAGES = {"pages of 2,000 rows": "2000", "pages of any number of rows": "100000000"}
_ROWS, _SIZE = "write.parquet.page-row-limit", "write.parquet.page-size-bytes"
_BLOOM = "write.parquet.bloom-filter-enabled.column."
_METRICS = "write.metadata.metrics."
_ZORDERED = 4
Measure = Callable[[Sequence[lh.Table]], Sequence[tuple[float, float]]]


def untried(
    lake: lh.Lakehouse, table: lh.Table, queries: Sequence[str], measure: Measure
) -> dict[str, dict[str, float]]:
    """Ratios of bytes and processor time for each thing that is not tried.

    Args:
        lake: where copies go.
        table: tuned.
        queries: filters.
        measure: bytes and processor time of tables, asked in turns.
    """
    rows, layout = table.scan().to_arrow(), layout_of(table.metadata)
    kept = {
        name: text
        for name, text in table.properties.items()
        if name.startswith(("write.parquet.", "lakehouse.write."))
    }
    bound_queries = check_queries(queries, table.schema())
    filtered = sorted({column.path[0] for _, where in bound_queries for column in columns(where)})
    numbers = count()

    def copy(more: Mapping[str, str], sort_by: Sequence[str] = layout.sort_by) -> lh.Table:
        made = lake.create_table(
            f"bench.{table.name.rpartition('.')[2]}_{next(numbers)}",
            table.schema(),
            partition_by=layout.partition_by,
            sort_by=sort_by,
            properties={**kept, **more},
        )
        made.append(rows)
        return made

    measured_columns = {f"{_METRICS}column.{name}": "full" for name in filtered}
    base = copy({})
    others = {
        "the same again": copy({}),
        **{title: copy({_ROWS: limit}) for title, limit in PAGES.items()},
        "pages of 64 KiB": copy({_SIZE: str(64 << 10)}),
        "no metrics but of filters": copy({f"{_METRICS}default": "none", **measured_columns}),
    }
    if 2 <= len(filtered) <= _ZORDERED:
        zordered = copy({}, ())
        zordered.compact(lh.CompactionOptions(rewrite_all=True, zorder_by=filtered))
        others["z-order"] = zordered
    if filtered:
        blooms = {f"{_BLOOM}{name}": "true" for name in filtered}
        others["Bloom filters, unread"] = copy(blooms)
    (size, time), *measured = measure([base, *others.values()])
    found = {
        title: {"bytes": round(bytes_ / size, 3), "read": round(time_ / time, 3)}
        for title, (bytes_, time_) in zip(others, measured, strict=True)
    }
    if filtered:
        found["a filter that never errs"] = {"bytes": 1.0, "read": _ideal(base, queries)}
    return found


def _ideal(table: lh.Table, queries: Sequence[str]) -> float:
    """Processor time by counts, where no row group is opened in vain, to that of today."""
    now = ideal = 0.0
    row_ns = sum(_value_ns(column.type) for column in schema_to_arrow(table.schema()))
    reader = RowReader(ReadRequest.of(table.metadata, table.metadata.schema()), table.storage)
    for query, where in check_queries(queries, table.schema()):
        cost = cost_today(table, query, where)
        scan = table.scan(where=query.where, select=["_file", "_pos"])
        hits = set(map(tuple, zip(*scan.to_arrow().to_pydict().values(), strict=True)))
        groups = rows = 0
        for task in table.scan(where=query.where).plan().tasks:
            for group in reader.open(task).row_groups:
                places = range(group.first_row, group.first_row + group.rows)
                if hits.isdisjoint((task.data_file.file_path, place) for place in places):
                    groups, rows = groups + 1, rows + group.rows
        now += cost.ms(row_ns)
        ideal += replace(cost, groups=cost.groups - groups, rows=cost.rows - rows).ms(row_ns)
    return round(ideal / now, 3)


def _value_ns(kind: pa.DataType) -> float:
    return 6.0 if pa.types.is_primitive(kind) else 25.0
