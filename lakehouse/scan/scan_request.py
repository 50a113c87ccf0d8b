"""What a scan asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lakehouse.expressions.filter_binding import Where
from lakehouse.spec.metadata.table_metadata import TableMetadata


def _go_on() -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """A scan as data.

    Attributes:
        metadata: the table version to read.
        snapshot_id: snapshot to read; None is the current one (an empty table has none and plans to
            nothing).
        current_schema: read the snapshot with the table's present schema, as heads of branches are;
            else with its own.
        where: SQL (docs/filters.md), an expression of pyiceberg, None for all rows; or bound to
            the schema already.
        select: column names to project (`a.b` reaches into structs); None is every column.
        case_sensitive: whether names in `where` and `select` must match exactly.
        include_metrics: whether planned files carry column sizes, counts and bounds.
        use_columnar: whether columnar manifests may be used.
        whole_residuals: whether the residual of each task is the whole filter, which is true and
            takes no time.
        checkpoint: called again and again while planning; what it raises ends the plan.
    """

    metadata: TableMetadata
    snapshot_id: int | None = None
    current_schema: bool = False
    where: Where = None
    select: Sequence[str] | None = None
    case_sensitive: bool = True
    include_metrics: bool = False
    use_columnar: bool = True
    whole_residuals: bool = False
    checkpoint: Callable[[], None] = field(default=_go_on, compare=False)
