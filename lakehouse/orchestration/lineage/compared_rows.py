"""Rows computed again beside the rows of a table."""

from __future__ import annotations

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
