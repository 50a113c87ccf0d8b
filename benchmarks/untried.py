"""What `lakehouse tune` does not try, measured on what it tuned: `benchmarks.tune --untried`.

Each table is written again in the layout that was chosen, and with one thing more: z-order of the
columns that queries filter by, other pages, no metrics of columns that no query filters by. Ratios
of bytes and of the queries' processor time to the same without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count

import lakehouse as lh
from lakehouse.expressions.bound_filter import columns
from lakehouse.tuning.trial import check_queries, layout_of

PAGES = {"pages of 2,000 rows": "2000", "pages of any number of rows": "100000000"}
_ROWS, _SIZE = "write.parquet.page-row-limit", "write.parquet.page-size-bytes"
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
    (size, time), *measured = measure([base, *others.values()])
    return {
        title: {"bytes": round(bytes_ / size, 3), "read": round(time_ / time, 3)}
        for title, (bytes_, time_) in zip(others, measured, strict=True)
    }
