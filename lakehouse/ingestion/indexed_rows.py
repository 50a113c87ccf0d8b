"""What indexing a file adds to the ledger. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date

import orjson

from lakehouse.ingestion.landing_ledger import LedgerRow
from lakehouse.ingestion.workers.index_pass import IndexedFile


def ledger_rows(indexed: IndexedFile) -> list[LedgerRow]:
    """One row a day, and one without a day.

    Every file has that one, so that a file without any line is known as well.
    """

    def row(day: date | None, lines: int) -> LedgerRow:
        return LedgerRow(
            landing_file=indexed.file.path,
            size_bytes=indexed.file.size_bytes,
            modified_ms=indexed.file.modified_ms,
            event_day=day,
            lines=lines,
            pending=day is not None,
        )

    index = indexed.index
    undated = replace(
        row(None, indexed.undated), quarantined=indexed.undated, problem=indexed.problem
    )
    if index is None:
        return [undated]
    dated = [row(day, lines) for day, lines in sorted(index.lines.items())]
    return [*dated, replace(undated, kinds=orjson.dumps(index.kinds).decode())]


def reindexed(rows: Sequence[LedgerRow], ledger: Sequence[LedgerRow]) -> list[LedgerRow]:
    """New ledger rows, marked where an earlier version of the file is known.

    The days of both versions have to be replaced.
    """
    earlier: dict[str, list[LedgerRow]] = {}
    for row in ledger:
        earlier.setdefault(row.landing_file, []).append(row)
    result = [
        replace(row, replaces=row.event_day is not None and row.landing_file in earlier)
        for row in rows
    ]
    present = {(row.landing_file, row.event_day) for row in rows}
    version = {row.landing_file: row.file for row in rows}
    for path, file in version.items():
        result += [
            replace(
                old, size_bytes=file.size_bytes, modified_ms=file.modified_ms, lines=0, rows=0,
                quarantined=0, duplicates=0,
                pending=True, replaces=True, kinds="{}",
            )
            for old in earlier.get(path, ())
            if old.event_day is not None and (path, old.event_day) not in present
        ]  # fmt: skip
    return result
