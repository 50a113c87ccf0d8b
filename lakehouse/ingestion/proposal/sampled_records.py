"""What sample files hold, field by field: kinds of values, how many differ, some of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date

import pyarrow.fs as pafs

from lakehouse.errors import NoSuchFileError
from lakehouse.ingestion.landing_ledger import LandingFile
from lakehouse.ingestion.landing_listing import landing_files, list_folder
from lakehouse.ingestion.reading.content import UnreadableContentError
from lakehouse.ingestion.reading.formats.record_chunks import Chunk, Records
from lakehouse.ingestion.reading.landing_file import file_chunks
from lakehouse.ingestion.reading.typing.observed_kinds import column_kinds
from lakehouse.ingestion.reading.typing.spelled_text import SpelledText
from lakehouse.ingestion.source import Source
from lakehouse.ingestion.workers.landing_reader import LandingReader
from lakehouse.storage.storage_by_scheme import storage_for

_JUDGED_VALUES = 2_000


@dataclass(frozen=True)
class Sample:
    """Files to look at.

    Attributes:
        folder: where they are.
        files: in the order in which they are looked at.
        storage_properties: how to reach them.
        most_records: no more are looked at.
    """

    folder: str
    files: tuple[LandingFile, ...]
    storage_properties: Mapping[str, str] = field(repr=False)
    most_records: int

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        return sum(one.size_bytes for one in self.files)

    def chunks(
        self, source: Source, today: date, problems: dict[str, str]
    ) -> Iterator[tuple[str, Chunk]]:
        """The records of the files with the file's path, until there are enough of them.

        Args:
            source: how to read them.
            today: see `LandingReader`.
            problems: what is wrong with a file as a whole is added to it.
        """
        reader = LandingReader(self.folder, source, today, self.storage_properties)
        left = self.most_records
        for file in self.files:
            if file.refused is not None:
                problems[file.path] = f"refused file {file.refused}"
                continue
            try:
                with reader.open(file) as stream:
                    for chunk in file_chunks(stream, file.path, source):
                        # counted first: who takes the chunk may add to its rejects
                        left -= len(chunk.rejects)
                        left -= 0 if chunk.records is None else len(chunk.records.lines)
                        yield file.path, chunk
                        if left <= 0:
                            return
            except UnreadableContentError as error:
                problems[file.path] = error.message
            except OSError as error:
                problems[file.path] = f"unreadable file {type(error).__name__}: {error}"


def find_sample(location: str, storage_properties: Mapping[str, str], most_records: int) -> Sample:
    """The files that a location names: one, or all of a folder.

    Raises:
        NoSuchFileError: there is nothing, or an empty folder.
    """
    location = location.rstrip("/")
    storage = storage_for(location, storage_properties)
    filesystem, path = storage.filesystem(location)
    info = filesystem.get_file_info(path)
    if info.type == pafs.FileType.File:
        folder, _, name = location.rpartition("/")
        modified_ms = 0 if info.mtime_ns is None else info.mtime_ns // 1_000_000
        file = LandingFile(name, info.size, modified_ms, None)
        return Sample(folder, (file,), storage_properties, most_records)
    files = landing_files(list_folder(location, "*", storage_properties))
    if not files:
        raise NoSuchFileError(
            f"there is no file and no folder with files at {location}", file=location
        )
    return Sample(location, tuple(files), storage_properties, most_records)


@dataclass
class Field:
    """A field of the sample's records.

    Attributes:
        kinds: how many values of each kind there are.
        count: values that are not null.
        distinct: different ones; None for nested values, which are not compared.
        values: the first of them.
        untyped: they are text whose kind is guessed (CSV).
    """

    kinds: Counter[str] = field(default_factory=Counter)
    count: int = 0
    distinct: set[object] | None = field(default_factory=set)
    values: list[object] = field(default_factory=list)
    untyped: bool = False

    def add(self, values: list[object]) -> None:
        """Take values that are not null."""
        self.count += len(values)
        self.values += values[: _JUDGED_VALUES - len(self.values)]
        if self.distinct is not None:
            try:
                self.distinct.update(values)
            except TypeError:  # lists and structs
                self.distinct = None


@dataclass
class SampledRecords:
    """The sum of the records that were looked at.

    Attributes:
        records: how many there were.
        unreadable: lines that are no record.
        distinct_records: different ones.
        fields: by name, in the order in which they came.
        problems: of files as a whole, by path.
        spelled: how text is spelled; None: as usual.
    """

    records: int = 0
    unreadable: int = 0
    distinct_records: set[bytes] = field(default_factory=set)
    fields: dict[str, Field] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    spelled: SpelledText | None = None

    def add(self, chunk: Chunk) -> None:
        """Take a chunk."""
        self.unreadable += len(chunk.rejects)
        if chunk.records is not None:
            self._add(chunk.records)

    def _add(self, records: Records) -> None:
        count = len(records.lines)
        self.records += count
        self.distinct_records.update(records.text(position) for position in range(count))
        for name, present in records.fields().items():
            of = self.fields.setdefault(name, Field())
            of.untyped = records.untyped
            of.kinds.update(column_kinds(present, untyped=records.untyped, spelled=self.spelled))
            values = present if isinstance(present, list) else present.to_pylist()
            of.add([value for value in values if value is not None])
