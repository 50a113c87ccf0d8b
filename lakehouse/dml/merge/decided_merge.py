"""A MERGE as it was decided on, with the source rows that everything in it follows from."""

from __future__ import annotations

from dataclasses import dataclass, field

from lakehouse.dml.merge.merge_binding import BoundMerge
from lakehouse.dml.merge.source_match import SourcePart
from lakehouse.dml.merge.target_rows import Origins, RowChanges


@dataclass(slots=True, kw_only=True)
class DecidedMerge(RowChanges):
    """What a MERGE does.

    Attributes:
        merge: the statement.
        part: all source rows; None where they were not in memory at once, or where rows were
            decided on that match none of them: then nothing below is known.
        gone_origins: for each item of `gone`, of each position, a source row that matched, by its
            number.
        seen_origins: the same for `seen`.
    """

    merge: BoundMerge
    part: SourcePart | None = None
    gone_origins: list[Origins] = field(default_factory=list)
    seen_origins: list[Origins] = field(default_factory=list)
