"""What lies in a landing folder, in columns, so that a million files are no million objects.

A listing is an Arrow table of `LANDED_SCHEMA`, one row for each file. A join of
columns finds what of it the ledger does not know; objects are made of the files that a run is going
to read.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import translate
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.errors import NoSuchFileError
from lakehouse.ingestion.landing_ledger import LandingFile, LedgerRow, landing_folder
from lakehouse.ingestion.source import Source
from lakehouse.storage.storage_by_scheme import storage_for
from lakehouse.storage.storage_protocol import Storage, path_on_disk

LANDED_SCHEMA = pa.schema(
    [
        pa.field("landing_file", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("modified_ms", pa.int64(), nullable=False),
        pa.field("refused", pa.string()),
    ]
)
# what tells a version of a file from any other, under the names that the ledger has for it
VERSION = ["landing_file", "size_bytes", "modified_ms"]
_BATCH_ROWS = 1 << 16
_JOINED_ROWS = 1 << 18

# path, size in bytes, modification time in milliseconds, why it is never opened
_Facts = tuple[str, int, int, str | None]


def list_landing(
    landing_root: str, source: Source, named: Collection[str] | None = None
) -> pa.Table:
    """The source's files, in no order, as `LANDED_SCHEMA` has them (see `LandingFile`).

    Hidden and temporary files (a path part that starts with `.` or `_`) are not looked at.

    Args:
        landing_root: where the landing folders are.
        source: whose files they are.
        named: paths of those that are wanted; others may be left out. On a disk they are looked at
            one by one, on an object store the folder that holds all of them is listed.

    Raises:
        NoSuchFileError: the landing folder does not exist, or is empty on a store that has no
            folders.
    """
    folder = landing_folder(landing_root, source)
    listing = list_folder(folder, source.pattern, named=named)
    if not listing.num_rows and not folder_exists(folder):
        raise NoSuchFileError(
            f"source {source.name!r}: landing folder {folder} does not exist; "
            "create it or fix LAKEHOUSE_LANDING",
            file=folder,
        )
    return listing


def list_folder(
    folder: str,
    pattern: str,
    storage_properties: Mapping[str, str] | None = None,
    named: Collection[str] | None = None,
) -> pa.Table:
    """The files of any folder whose path below it matches a pattern (`fnmatch`), else as above."""
    storage = storage_for(folder, storage_properties or {})
    on_disk = path_on_disk(storage, folder)
    files: Iterable[_Facts]
    if on_disk is None:
        files = _in_store(storage, folder, "" if named is None else _common_folder(named))
    else:
        files = _on_disk(on_disk, "") if named is None else _named_on_disk(on_disk, named)
    wanted = re.compile(translate(pattern)).match
    return _table(facts for facts in files if not _is_hidden(facts[0]) and wanted(facts[0]))


def landed(files: Iterable[LandingFile]) -> pa.Table:
    """Files as a listing has them."""
    return _table((file.path, file.size_bytes, file.modified_ms, file.refused) for file in files)


def landing_files(listing: pa.Table) -> list[LandingFile]:
    """The files of a listing as objects, sorted by path."""
    columns = (listing[name].to_pylist() for name in LANDED_SCHEMA.names)
    return sorted(LandingFile(*facts) for facts in zip(*columns, strict=True))


def unindexed(listing: pa.Table, ledger: Iterable[pa.RecordBatch]) -> pa.Table:
    """Files of a listing whose present version is not in the ledger, in no order.

    Args:
        listing: as `list_landing` returns it.
        ledger: the columns `VERSION` of all its rows. They are taken as they come, some at a time.
    """
    left = listing
    for indexed in _gathered(ledger):
        left = left.join(indexed, keys=VERSION, join_type="left anti")
    return left


def landed_among(listing: pa.Table, rows: Iterable[LedgerRow]) -> set[LandingFile]:
    """Versions of files that ledger rows are about and that a listing has."""
    named = landed({row.file for row in rows})
    return set(landing_files(named.join(listing, keys=VERSION, join_type="left semi")))


def digest(listing: pa.Table) -> str:
    """A short name of exactly these versions of these files, whatever their order."""
    ordered = listing.select(VERSION).sort_by([(name, "ascending") for name in VERSION])
    hashed = hashlib.blake2b(digest_size=12)
    for batch in ordered.to_batches(max_chunksize=_BATCH_ROWS):
        texts = [column.cast(pa.string()) for column in batch.columns]
        lines = pc.binary_join_element_wise(*texts, "\t")
        hashed.update("".join(f"{line}\n" for line in lines.to_pylist()).encode())
    return hashed.hexdigest()


def folder_exists(folder: str) -> bool:
    """Whether the folder is there (an object store has it as soon as it holds an object)."""
    parent, _, name = folder.rstrip("/").rpartition("/")
    return name in storage_for(folder).list_folders(parent)


def _gathered(ledger: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches together, as many as are worth a join."""
    batches: list[pa.RecordBatch] = []
    rows = 0
    for batch in ledger:
        batches.append(batch)
        rows += batch.num_rows
        if rows >= _JOINED_ROWS:
            yield pa.Table.from_batches(batches)
            batches, rows = [], 0
    if batches:
        yield pa.Table.from_batches(batches)


def _table(files: Iterable[_Facts]) -> pa.Table:
    batches: list[pa.RecordBatch] = []
    coming = iter(files)
    while True:
        # tuples that are kept would have the garbage collector walk all objects again and again
        columns: list[list[Any]] = [[] for _ in LANDED_SCHEMA]
        add_path, add_size, add_time, add_refused = (column.append for column in columns)
        for path, size, modified, refused in islice(coming, _BATCH_ROWS):
            add_path(path)
            add_size(size)
            add_time(modified)
            add_refused(refused)
        if not columns[0]:
            return pa.Table.from_batches(batches, LANDED_SCHEMA)
        arrays = map(pa.array, columns, LANDED_SCHEMA.types)
        batches.append(pa.record_batch([*arrays], schema=LANDED_SCHEMA))


def _is_hidden(path: str) -> bool:
    return path.startswith((".", "_")) or "/." in path or "/_" in path


def _in_store(storage: Storage, folder: str, below: str) -> Iterator[_Facts]:
    # a HEAD for each would not do: its times have no milliseconds, those of a listing may
    for info in storage.list(f"{folder}/{below}".rstrip("/")):
        yield info.location[len(folder) :].lstrip("/"), info.size, info.modified_ms, None


def _common_folder(paths: Iterable[str]) -> str:
    return "/".join(os.path.commonprefix([path.split("/")[:-1] for path in paths]))


def _named_on_disk(root: str, paths: Iterable[str]) -> Iterable[_Facts]:
    """Plain files by their names; all files, if what one of these is takes a listing to tell."""
    files: list[_Facts] = []
    plain: set[str] = set()
    real = os.path.realpath(root)
    for path in paths:
        folder = path.rpartition("/")[0]
        try:
            facts = os.lstat(f"{root}/{path}")
        except (FileNotFoundError, NotADirectoryError):
            if "\\" in path:  # maybe bytes that are no UTF-8, see `_label`
                return _on_disk(root, "")
            continue
        except (OSError, ValueError):
            return _on_disk(root, "")
        if folder not in plain:
            if os.path.realpath(f"{root}/{folder}") != f"{real}/{folder}".rstrip("/"):
                return _on_disk(root, "")
            plain.add(folder)
        if not stat.S_ISREG(facts.st_mode):
            return _on_disk(root, "")
        files.append((path, facts.st_size, facts.st_mtime_ns // 1_000_000, None))
    return files


def _on_disk(root: str, folder: str) -> Iterator[_Facts]:
    """Files below a folder of a disk, where links and names exist that an object store has not."""
    try:
        # stat calls relative to an open folder need no walk of its path for each file
        handle = os.open(f"{root}/{folder}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        with os.scandir(handle) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from _on_disk(root, f"{folder}{entry.name}/")
                elif facts := _facts(root, f"{folder}{entry.name}", entry):
                    yield facts
    finally:
        os.close(handle)


def _facts(root: str, path: str, entry: os.DirEntry[str]) -> _Facts | None:
    label = path if path.isascii() else _label(path)
    try:
        facts = entry.stat()
    except FileNotFoundError:
        return None  # gone since, or a link to nothing
    except OSError as error:
        return label, 0, 0, f"it cannot be looked at: {error.strerror}"
    refused = "its name is not UTF-8: rename it" if label != path else None
    if not stat.S_ISREG(facts.st_mode):
        refused = "it is no regular file"
    elif entry.is_symlink() and not Path(root, path).resolve().is_relative_to(Path(root).resolve()):
        refused = "it is a link out of the landing folder: copy the file"
    return label, facts.st_size, facts.st_mtime_ns // 1_000_000, refused


def _label(path: str) -> str:
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
