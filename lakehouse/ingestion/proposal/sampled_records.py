"""What sample files hold, field by field: kinds of values, how many differ, some of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from itertools import combinations

import pyarrow.fs as pafs

from lakehouse.errors import NoSuchFileError
from lakehouse.ingestion.drift import usable_name
from lakehouse.ingestion.landing_ledger import LandingFile
from lakehouse.ingestion.landing_listing import landing_files, list_folder
from lakehouse.ingestion.reading.content import UnreadableContentError
from lakehouse.ingestion.reading.formats.record_chunks import Chunk, Records, python_values
from lakehouse.ingestion.reading.landing_file import file_chunks
from lakehouse.ingestion.reading.typing.observed_kinds import column_kinds
from lakehouse.ingestion.reading.typing.spelled_text import SpelledText
from lakehouse.ingestion.reading.typing.value_kinds import inferred
from lakehouse.ingestion.source import Column, Source
from lakehouse.ingestion.workers.landing_reader import LandingReader
from lakehouse.storage.storage_by_scheme import storage_for

_JUDGED_VALUES = 2_000
# fields that not every record has, compared in pairs
_MOST_COMPARED, _MOST_RECORDS, _SHARED = 200, 0.9, 20
_LONGEST = 200
_NO_WORD = re.compile(r"\W+")
_WORDS = re.compile(r"[A-Z]?[^\W\d_A-Z]+|[A-Z]+|\d+")


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
        return sum(file.size_bytes for file in self.files)

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
        dated: records without a value in this field are not looked at.
        undated: the first record without one.
    """

    records: int = 0
    unreadable: int = 0
    distinct_records: set[bytes] = field(default_factory=set)
    fields: dict[str, Field] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    spelled: SpelledText | None = None
    dated: str | None = None
    undated: bytes | None = None

    def add(self, chunk: Chunk) -> None:
        """Take a chunk."""
        self.unreadable += len(chunk.rejects)
        records = chunk.records
        if records is not None and self.dated is not None:
            times = records.column(self.dated)
            times = times if isinstance(times, list) else times.to_pylist()
            taken = [at for at, time in enumerate(times) if time is not None]
            if len(taken) < len(times) and self.undated is None:
                self.undated = records.text(next(n for n, at in enumerate(times) if at is None))
            records = records.only(taken) if taken else None
        if records is not None:
            self._add(records)

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


def aliased_columns(
    records: SampledRecords, sample: Sample, source: Source, today: date, notes: list[str]
) -> tuple[Column, ...]:
    """Columns that take their value from several fields, or from one that cannot be a column.

    Several fields are one column if no record has two values for it, and they differ by case alone,
    or are alike, in name or values, and together are in most records. A field that differs by case
    from one that records have beside it, or has a name that no column may have, gets a column of
    another name.

    Args:
        records: what the sample holds.
        sample: is read once more if there are such fields.
        source: how to read it.
        today: see `LandingReader`.
        notes: takes a line for each proposal.
    """
    fields = {name: field for name, field in records.fields.items() if field.count}
    partial = [name for name, field in fields.items() if field.count < records.records][
        :_MOST_COMPARED
    ]
    pairs = [
        (first, second)
        for folded in _alike(fields, str.casefold)
        for first, second in combinations(folded, 2)
    ]
    pairs += [
        (first, second)
        for first, second in combinations(partial, 2)
        if first.casefold() != second.casefold() and _may_be_one(first, second, records)
    ]
    apart = set(pairs)
    for _, chunk in sample.chunks(source, today, {}) if pairs else ():
        of_chunk = chunk.records
        for pair in list(apart) if of_chunk is not None else ():
            values = [column if isinstance(column, list) else python_values(column)
                      for column in map(of_chunk.column, pair)]  # type: ignore[union-attr]  # fmt: skip
            if any(
                value is not None and other is not None and repr(value) != repr(other)
                for value, other in zip(*values, strict=True)
            ):
                apart.discard(pair)
    order = {name: place for place, name in enumerate(fields)}
    columns: list[Column] = []
    taken: set[str] = set()
    for first in fields:
        if first in taken:
            continue
        others = [name for name in fields if (first, name) in apart and name not in taken]
        if not others:
            continue
        same = {name.casefold() for name in (first, *others)}
        # of spellings the commonest, of names the one that came last
        by_case = len(same) == 1
        best = max((first, *others), key=lambda n: fields[n].count if by_case else order[n])
        aliases = tuple(name for name in (first, *others) if name != best)
        taken |= {best, *aliases}
        columns.append(Column(best, "string", aliases))
        shown = ", ".join(f"{name!r} ({fields[name].count:,})" for name in (*aliases, best))
        notes.append(f"{shown}: no record has different values, so they are one column, {best!r}")
    twins = {
        name: "differs from another column by case alone, and records have both"
        for names in _alike(fields, str.casefold)
        for name in sorted(names, key=lambda n: -fields[n].count)[not taken & {*names} :]
    }
    odd = {name: "cannot be the name of a column" for name in fields if not usable_name(name)}
    folded = {name.casefold() for name in fields}
    for name, why in {**twins, **odd}.items():
        if name in taken:
            continue
        plain = (_NO_WORD.sub("_", name).strip("_") or "column")[:_LONGEST]
        named = (plain, *(f"{plain}_{n}" for n in range(2, len(fields) + 3)))
        free = next(name for name in named if name.casefold() not in folded and usable_name(name))
        folded.add(free.casefold())
        columns.append(Column(free, "string", (name,)))
        notes.append(f"{name!r} {why}: its column is {free!r}")
    return tuple(columns)


def _alike(names: Iterable[str], key: Callable[[str], str]) -> list[list[str]]:
    """Names with the same key, where there are several."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(key(name), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def _may_be_one(first: str, second: str, records: SampledRecords) -> bool:
    """Whether two fields look like one that was renamed."""
    field, other = records.fields[first], records.fields[second]
    if inferred(field.kinds) != inferred(other.kinds):
        return False
    if (field.count + other.count) < _MOST_RECORDS * records.records:
        return False
    words = [_WORDS.findall(name) for name in (first, second)]
    if len(words[0]) == len(words[1]) and all(
        a == b or (min(len(a), len(b)) > 2 and (a.startswith(b) or b.startswith(a)))
        for a, b in zip(
            *([word.casefold() for word in spelling] for spelling in words), strict=True
        )
    ):
        return True
    shared = len((field.distinct or set()) & (other.distinct or set()))
    least = min(len(field.distinct or ()), len(other.distinct or ()))
    return shared >= _SHARED and shared * 2 >= least
