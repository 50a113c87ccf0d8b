"""Commits to several tables of a warehouse folder, each decided by one file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from lakehouse.catalog.catalog_protocol import TableVersion
from lakehouse.catalog.metadata_files import (
    compression_of,
    create_resolved,
    metadata_bytes,
    metadata_folder,
    read_metadata,
)
from lakehouse.errors import CorruptMetadataError, FileAlreadyExistsError, NoSuchFileError
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.storage.location import join
from lakehouse.storage.storage_protocol import Storage

FOLDER = ".transactions"
MARK = "lakehouse-transaction"
"""Key of table metadata: a transaction that the version is part of, and what it would be after."""


class RecordedTransactions:
    """Commits to several tables of a warehouse, each decided by one file.

    Each table gets a version that is as the one before, but for a mark: which transaction is under
    way, and where the metadata is that the table is to have. Then one file says that the
    transaction is committed, `.transactions/<id>.json`, which is created once. From then on whoever
    loads one of the tables finds it changed, and writes the version that says so for everybody. As
    long as nobody has decided, readers see the tables as they were; a writer who comes across the
    mark decides that the transaction is withdrawn, and goes on.

    Engines that do not know the mark see each table change when its version is written, one after
    the other.

    Args:
        storage: keeps them.
        warehouse: whose transactions they are.
    """

    def __init__(self, storage: Storage, warehouse: str) -> None:
        self._storage, self._folder = storage, join(warehouse, FOLDER)

    def prepare(self, transaction: str, base: TableVersion, new: TableMetadata) -> TableMetadata:
        """Write what a table is to become; the metadata that marks it."""
        codec = compression_of(new)
        ending = "json" if codec == "none" else "gz.json"
        location = join(metadata_folder(new), f"{transaction}.prepared.{ending}")
        self._storage.create(location, metadata_bytes(new, codec))
        mark = {"id": transaction, "becomes": location}
        return replace(base.metadata, extra={**base.metadata.extra, MARK: mark})

    def decide(self, transaction: str, *, committed: bool) -> bool:
        """Whether it is committed: what is said here, or what was said before by another.

        Raises StorageError: perhaps decided, where its outcome is not "failed".
        """
        try:
            create_resolved(self._storage, self._location(transaction), _said(committed=committed))
        except FileAlreadyExistsError:
            return self.is_committed(transaction) is True
        return committed

    def is_committed(self, transaction: str) -> bool | None:
        """What was decided; None: nothing yet. Raises CorruptMetadataError."""
        location = self._location(transaction)
        try:
            decision = orjson.loads(self._storage.read(location))
        except NoSuchFileError:
            return None
        except orjson.JSONDecodeError as error:
            raise CorruptMetadataError(f"{location} is no decision: {error}") from error
        return bool(decision == orjson.loads(_said(committed=True)))

    def becomes(self, metadata: TableMetadata) -> TableMetadata:
        """What a marked table is after the transaction."""
        return read_metadata(self._storage, str(_mark(metadata)["becomes"]))

    def forget(self, transaction: str) -> None:
        """Delete a decision that no table needs any more."""
        self._storage.delete([self._location(transaction)])

    def _location(self, transaction: str) -> str:
        return join(self._folder, f"{transaction}.json")


def transaction_of(metadata: TableMetadata) -> str | None:
    """The transaction that a version is marked with; None: it has no mark."""
    return str(_mark(metadata)["id"]) if MARK in metadata.extra else None


def with_mark(metadata: TableMetadata, marked: TableMetadata) -> TableMetadata:
    """The metadata with the mark of another version."""
    return replace(metadata, extra={**metadata.extra, MARK: marked.extra[MARK]})


def without_mark(metadata: TableMetadata) -> TableMetadata:
    """The metadata of a table that is no part of the transaction any more."""
    rest = {key: value for key, value in metadata.extra.items() if key != MARK}
    return replace(metadata, extra=rest)


def _mark(metadata: TableMetadata) -> Mapping[str, Any]:
    mark = metadata.extra[MARK]
    if not isinstance(mark, dict) or not {"id", "becomes"} <= mark.keys():
        raise CorruptMetadataError(f"Table {metadata.location}: {MARK} is {mark!r}.")
    return mark


def _said(*, committed: bool) -> bytes:
    return orjson.dumps({"committed": committed})
