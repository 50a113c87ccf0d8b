"""Rejects on their way into data files of the quarantine, in bounded memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from lakehouse.data.writing.data_file_writer import WriteRequest, write_all
from lakehouse.ingestion.reading.formats.record_chunks import Rejects
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.storage.storage_by_scheme import storage_for
from lakehouse.storage.storage_protocol import Storage

_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class TableFiles:
    """How data files of a table are written on a worker; picklable.

    Attributes:
        request: facts of the table.
        properties: how to reach its storage.
    """

    request: WriteRequest
    properties: Mapping[str, str] = field(repr=False)

    @property
    def storage(self) -> Storage:
        """Where the files go."""
        return storage_for(self.request.location, self.properties)


class QuarantineFiles:
    """Quarantine data files of one task; records of one landing file can be taken back.

    Args:
        target: the quarantine.
        task: distinguishes parallel tasks.

    Attributes:
        files: written so far.
    """

    def __init__(self, target: TableFiles, task: str) -> None:
        self.files: list[DataFile] = []
        self._target, self._task, self._number = target, task, 0
        self._waiting: list[pa.RecordBatch] = []
        self._files_before = self._waiting_before = self._bytes = 0

    def begin(self) -> None:
        """Go on to another landing file."""
        self._files_before, self._waiting_before = len(self.files), len(self._waiting)

    def add(self, rejects: Rejects, landing_file: str) -> None:
        """Take rejects of the present landing file."""
        if len(rejects):
            self._waiting.append(rejects.batch(landing_file))
            self._bytes += self._waiting[-1].nbytes
            if self._bytes >= _MOST_BYTES:
                self._flush()

    def _flush(self) -> None:
        """Write what waits; the present landing file gets data files of its own."""
        if self._waiting_before:
            self._write(self._waiting[: self._waiting_before])
            self._files_before = len(self.files)
        self._write(self._waiting[self._waiting_before :])
        self._waiting, self._waiting_before, self._bytes = [], 0, 0

    def take_back(self) -> None:
        """Forget what the present landing file gave."""
        self._delete(self.files[self._files_before :])
        del self.files[self._files_before :], self._waiting[self._waiting_before :]
        self._bytes = sum(batch.nbytes for batch in self._waiting)

    def finish(self) -> list[DataFile]:
        """Write what waits."""
        self._write(self._waiting)
        self._waiting = []
        return self.files

    def discard(self) -> None:
        """Delete every file: no snapshot has them."""
        self._delete(self.files)

    def _delete(self, files: list[DataFile]) -> None:
        if files:
            self._target.storage.delete([file.file_path for file in files])

    def _write(self, batches: list[pa.RecordBatch]) -> None:
        if batches:
            name = f"{self._task}-{self._number}"
            self._number += 1
            target = self._target
            self.files += write_all(batches, target.request, target.storage, task=name)
