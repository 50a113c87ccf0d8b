"""Opens landing files on any machine."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, timedelta

import pyarrow as pa
import pyarrow.fs as pafs

from lakehouse.ingestion.landing_ledger import LandingFile, landing_folder
from lakehouse.ingestion.reading.typing.event_time import EventClock
from lakehouse.ingestion.source import Source
from lakehouse.storage.storage_by_scheme import storage_for

AHEAD = timedelta(days=1)
"""How far clocks of a source without a last day may be ahead of ours."""


@dataclass(frozen=True)
class LandingReader:
    """What a worker has to know to read files of a source; picklable.

    Attributes:
        folder: the source's landing folder.
        source: how its files are read.
        today: the last day that events may have when the source names none.
        storage_properties: how to reach the folder.
    """

    folder: str
    source: Source
    today: date
    storage_properties: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, landing_root: str, source: Source, today: date) -> LandingReader:
        """Opens the source's files below the landing root."""
        folder = landing_folder(landing_root, source)
        as_read = replace(source, transform=None)  # runs in the driver, and may hold anything
        return cls(folder, as_read, today, dict(storage_for(folder).properties))

    def location(self, file: LandingFile) -> str:
        """Where a file is."""
        return f"{self.folder}/{file.path}"

    def open(self, file: LandingFile) -> pa.NativeFile:
        """The file's bytes.

        Raises:
            OSError | StorageError: it cannot be read (FileNotFoundError: it is gone).
        """
        location = self.location(file)
        storage = storage_for(self.folder, self.storage_properties)
        filesystem, path = storage.filesystem(location)
        if filesystem.get_file_info(path).type != pafs.FileType.File:
            raise FileNotFoundError(location)
        return filesystem.open_input_file(path)

    def clock(self) -> EventClock:
        """Tells the instants of the source's records."""
        source = self.source
        last_day = source.last_day or self.today + AHEAD
        return EventClock(source.event_time, source.first_day, last_day)


@contextmanager
def no_collection() -> Iterator[None]:
    """Without looking for cycles of objects.

    Records are trees: a search among millions of them would find none, and take most of the time.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
