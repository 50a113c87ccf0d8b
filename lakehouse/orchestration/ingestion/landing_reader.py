"""Reading landing files on Spark's workers: which task reads which file, and what a file that cannot be read becomes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date

import orjson
import pyarrow as pa
import pyarrow.fs as pafs

from lakehouse.errors import NoSuchFileError, StorageError
from lakehouse.orchestration.ingestion.first_look import FileIndex, index_file, unreadable
from lakehouse.orchestration.ingestion.landing import LandingFile
from lakehouse.orchestration.ingestion.source import Column, Source
from lakehouse.orchestration.ingestion.typed_rows import FileTask, file_batches
from lakehouse.storage.load import storage_for

REJECTS_SCHEMA = pa.schema(
    [
        pa.field("event_day", pa.date32()),
        pa.field("landing_file", pa.string(), nullable=False),
        pa.field("landing_line", pa.int64()),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("detail", pa.string()),
        pa.field("record", pa.string()),
        pa.field("record_bytes", pa.int64()),
    ]
)
VANISHED, UNREADABLE, INDEXED = "vanished", "unreadable", "indexed"
# a file's ledger rows as one JSON text beside its rejects: both come out of one pass
INDEX_SCHEMA = pa.schema(
    [
        pa.field("outcome", pa.string()),
        pa.field("ledger", pa.string()),
        *(f.with_nullable(True) for f in REJECTS_SCHEMA),
    ]
)

_TASK_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class LandingReader:
    """What a worker needs to open landing files; picklable.

    Attributes:
        folder: the source's landing folder.
        source: how to read its files.
        today: the last day that events may have when the source names none.
        storage_properties: how to reach the folder.
    """

    folder: str
    source: Source
    today: date
    storage_properties: Mapping[str, str]

    def open(self, file: LandingFile) -> pa.NativeFile:
        """The file's bytes. Raises OSError (FileNotFoundError when it is gone), StorageError."""
        location = f"{self.folder}/{file.path}"
        filesystem, path = storage_for(self.folder, self.storage_properties).filesystem(location)
        if filesystem.get_file_info(path).type == pafs.FileType.NotFound:
            raise FileNotFoundError(location)
        if self.source.format == "parquet":
            return filesystem.open_input_file(path)
        return filesystem.open_input_stream(path, compression=None)

    def index(self, file: LandingFile) -> tuple[str, FileIndex]:
        """First pass over one file, with its outcome."""
        try:
            with self.open(file) as stream:
                return INDEXED, index_file(file, stream, self.source, self.today)
        except (FileNotFoundError, NoSuchFileError):
            return VANISHED, FileIndex()
        except (OSError, StorageError) as error:
            return UNREADABLE, unreadable(file, error)

    def index_batches(self, file: LandingFile) -> Iterator[pa.RecordBatch]:
        """First pass over one file in `INDEX_SCHEMA`: a row with the ledger, then a row for each reject."""
        outcome, found = self.index(file)
        rows: list[dict[str, object]] = [
            {"outcome": outcome, "landing_file": file.path, "ledger": _ledger_json(found)}
        ]
        rows += [
            {
                "landing_file": file.path,
                "landing_line": r.line,
                "reason": r.reason,
                "detail": r.detail,
                "record": r.record,
                "record_bytes": r.record_bytes,
            }
            for r in found.rejects
        ]
        for start in range(0, len(rows), 1000):
            yield pa.RecordBatch.from_pylist(rows[start : start + 1000], schema=INDEX_SCHEMA)

    def row_batches(self, task: FileTask, columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
        """Second pass over one file.

        Raises:
            NoSuchFileError | StorageError: the file is gone or cannot be read any more; the message names it.
        """
        location = f"{self.folder}/{task.file.path}"
        try:
            with self.open(task.file) as stream:
                yield from file_batches(task, stream, self.source, columns, self.today)
        except FileNotFoundError as error:
            raise NoSuchFileError(
                f"landing file {location} vanished while it was read", file=location
            ) from error
        except OSError as error:
            raise StorageError(
                f"landing file {location} could not be read: {error}", retryable=True, file=location
            ) from error


def _ledger_json(found: FileIndex) -> str:
    return orjson.dumps([asdict(row) for row in found.ledger]).decode()


def balanced(files: Sequence[LandingFile], parallelism: int) -> list[list[LandingFile]]:
    """Files in groups of about equal size, one group a task: as many as keep every core busy, more when there is much to read."""
    total = sum(file.size_bytes for file in files)
    count = max(1, min(len(files), max(2 * parallelism, total // _TASK_BYTES)))
    groups: list[list[LandingFile]] = [[] for _ in range(count)]
    weights = [0] * count
    for file in sorted(files, key=lambda f: (-f.size_bytes, f.path)):
        lightest = weights.index(min(weights))
        groups[lightest].append(file)
        weights[lightest] += file.size_bytes + 1
    return groups
