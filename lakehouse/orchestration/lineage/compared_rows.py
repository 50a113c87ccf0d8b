"""Rows computed again beside the rows of a table."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame

from lakehouse.orchestration.lineage.trace import Lineage, Replay

_EXAMPLES = 3


def compared(lineage: Lineage, again: DataFrame, kept: DataFrame) -> Replay:
    """The rows that a replay gives beside those that the table keeps, as multisets."""
    columns = [f"`{name}`" for name in kept.columns]
    again = again.select(*columns).persist()
    kept = kept.persist()
    try:
        missing, unexpected = kept.exceptAll(again).persist(), again.exceptAll(kept).persist()
        examples = [f"missing: {row.asDict()}" for row in missing.take(_EXAMPLES)]
        examples += [f"unexpected: {row.asDict()}" for row in unexpected.take(_EXAMPLES)]
        return Replay(lineage, again.count(), missing.count(), unexpected.count(), tuple(examples))
    finally:
        again.unpersist()
        kept.unpersist()


def compared_streams(
    lineage: Lineage, again: pa.RecordBatchReader, kept: pa.RecordBatchReader
) -> Replay:
    """The same for rows of Arrow: DataFusion counts each row as often as the table has it more."""
    import datafusion  # noqa: PLC0415 - for a replay, not for every load of the definitions

    replayed, stored = again.read_all(), kept.read_all()
    replayed = replayed.select(stored.column_names).cast(stored.schema)
    context = datafusion.SessionContext()
    for name, rows in (("again", replayed), ("kept", stored)):
        context.register_record_batches(name, [rows.to_batches() or _no_rows(rows.schema)])
    columns = ", ".join('"' + name.replace('"', '""') + '"' for name in stored.column_names)
    surplus = '"lakehouse surplus"'
    differing = context.sql(
        f"SELECT {columns}, sum(one) AS {surplus} FROM (SELECT {columns}, 1 AS one FROM kept "
        f"UNION ALL SELECT {columns}, -1 AS one FROM again) AS both "
        f"GROUP BY {columns} HAVING sum(one) <> 0"
    ).to_arrow_table()
    found = [(row.pop("lakehouse surplus"), row) for row in differing.to_pylist()]
    missing = [(count, row) for count, row in found if count > 0]
    unexpected = [(-count, row) for count, row in found if count < 0]
    examples = [f"missing: {row}" for _, row in missing[:_EXAMPLES]]
    examples += [f"unexpected: {row}" for _, row in unexpected[:_EXAMPLES]]
    return Replay(
        lineage,
        replayed.num_rows,
        sum(count for count, _ in missing),
        sum(count for count, _ in unexpected),
        tuple(examples),
    )


def _no_rows(schema: pa.Schema) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pylist([], schema=schema)]
