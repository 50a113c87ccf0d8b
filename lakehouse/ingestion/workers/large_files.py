"""Large text files in parts, one a worker's task: their lines are counted first, in parallel."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain

from lakehouse.errors import StorageError
from lakehouse.ingestion.landing_ledger import LandingFile
from lakehouse.ingestion.reading.file_parts import (
    FilePart,
    Stretch,
    look_at,
    parts_of,
)
from lakehouse.ingestion.workers.landing_reader import LandingReader
from lakehouse.ingestion.workers.workers import Workers
from lakehouse.maintenance.shown_plan import Progress, no_progress

PART_BYTES_MIN = 8 << 20
"""A task of its own is not worth less."""


def large_file_parts(
    workers: Workers,
    reader: LandingReader,
    files: Sequence[LandingFile],
    progress: Progress = no_progress,
) -> dict[LandingFile, list[FilePart]]:
    """The parts of those among the files that are large and can be read in parts."""
    total = sum(file.size_bytes for file in files)
    size = max(PART_BYTES_MIN, total // workers.tasks(total))
    spans = {
        file: [
            range(start, min(start + size, file.size_bytes))
            for start in range(0, file.size_bytes, size)
        ]
        for file in files
        if file.size_bytes >= 2 * size
    }
    items = [(file, span) for file, ranges in spans.items() for span in ranges]

    def run(group: Sequence[tuple[LandingFile, range]], _task: str) -> list[Stretch | None]:
        return [_shown(reader, file, span) for file, span in group]

    # a task takes longer to start than to count the lines of its part
    few = min(len(items), workers.tasks())
    groups = [items[len(items) * at // few : len(items) * (at + 1) // few] for at in range(few)]
    counted = workers.results(groups, run, partial(progress, "tasks of counting lines"))
    shown = chain.from_iterable(counted)
    parts = {
        file: parts_of([next(shown) for _ in ranges], file.size_bytes)
        for file, ranges in spans.items()
    }
    return {file: cut for file, cut in parts.items() if len(cut) > 1}


def _shown(reader: LandingReader, file: LandingFile, span: range) -> Stretch | None:
    try:
        with reader.open(file) as stream:
            return look_at(stream, file.path, reader.source, span)
    except (OSError, StorageError):
        return None  # who reads it as a whole tells
