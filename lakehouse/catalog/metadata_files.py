"""Metadata files of tables and views: what a commit makes, names, writing, deletion."""

from __future__ import annotations

import logging
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Protocol

from lakehouse.catalog.catalog_protocol import TableVersion
from lakehouse.catalog.commit_outcome import is_certain
from lakehouse.catalog.view_protocol import StoredView
from lakehouse.errors import (
    CommitConflictError,
    CorruptMetadataError,
    FileAlreadyExistsError,
    InvalidPropertyError,
    LakehouseError,
    NoSuchFileError,
    StorageError,
)
from lakehouse.spec.metadata.metadata_draft import apply_updates, expired_metadata_files
from lakehouse.spec.metadata.metadata_json import parse, serialize
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.table_updates import Requirement, Update, check_requirements
from lakehouse.spec.table_properties import TableProperties
from lakehouse.spec.views.view_json import parse_view, serialize_view
from lakehouse.spec.views.view_metadata import ViewMetadata
from lakehouse.spec.views.view_updates import AssertViewUUID, ViewUpdate, apply_view_updates
from lakehouse.storage.location import canonical, lies_within
from lakehouse.storage.storage_protocol import Storage

log = logging.getLogger(__name__)

_NUMBERED = re.compile(
    r"^(\d+)-.*\.metadata\.json$|^(\d+)-.*\.metadata\.json\.gz$|^(\d+)-.*\.gz\.metadata\.json$"
)
_SUFFIX = {"none": ".metadata.json", "gzip": ".gz.metadata.json"}
_ENDINGS = (".metadata.json", ".metadata.json.gz")
_CREATE_ATTEMPTS = 3
_HEAD_BYTES = 4096
_GZIP = b"\x1f\x8b"
_UPDATED = re.compile(rb'"last-updated-ms"\s*:\s*(\d+)')
_SEQUENCE_NUMBER = re.compile(rb'"last-sequence-number"\s*:\s*(\d+)')


class Described(Protocol):
    """Metadata of a table or of a view."""

    @property
    def location(self) -> str:
        """Its base location."""

    @property
    def properties(self) -> Mapping[str, str]:
        """Its properties."""


def read_metadata(storage: Storage, location: str) -> TableMetadata:
    """Read one metadata file. Raises NoSuchFileError, CorruptMetadataError, StorageError."""
    return parse(storage.read(location), location)


def is_still(storage: Storage, version: TableVersion) -> bool:
    """Whether a metadata file is still the one that was loaded, judged by its first bytes.

    A late writer can put another file under the name of one that was cleaned up; it counts or dates
    otherwise.
    """
    metadata, location = version.metadata, version.metadata_location
    try:
        head = storage.read_range(location, 0, _HEAD_BYTES)
        if head[:2] == _GZIP:
            head = zlib.decompressobj(wbits=31).decompress(head, _HEAD_BYTES)
        updated, number = _UPDATED.search(head), _SEQUENCE_NUMBER.search(head)
        if updated is not None and (number is not None or metadata.format_version == 1):
            on_disk = (int(updated[1]), int(number[1]) if number else 0)
        else:
            whole = read_metadata(storage, location)
            on_disk = (whole.last_updated_ms, whole.last_sequence_number)
    except NoSuchFileError:
        return False
    except zlib.error as error:
        raise CorruptMetadataError(f"{location}: damaged gzip: {error}") from error
    return on_disk == (metadata.last_updated_ms, metadata.last_sequence_number)


def next_metadata(
    base: TableVersion, requirements: Sequence[Requirement], updates: Sequence[Update], now_ms: int
) -> TableMetadata:
    """The metadata a commit would make; the base's own object when nothing changes.

    Raises CommitConflictError.
    """
    try:
        check_requirements(base.metadata, requirements)
        return apply_updates(
            base.metadata, updates, now_ms=now_ms, base_location=base.metadata_location or None
        )
    except CommitConflictError as error:
        context = {**error.context, "table": str(base.identifier)}
        raise CommitConflictError(f"Table {base.identifier}: {error.message}", **context) from error


def metadata_folder(metadata: Described) -> str:
    """Where a table keeps metadata files, manifests and manifest lists, a view the first."""
    return TableProperties(metadata.properties).metadata_location(metadata.location)


def numbered_name(previous_location: str | None, unique: str, codec: str = "none") -> str:
    """The name of the next metadata file: `00004-<unique>.metadata.json` after `00003-<...>`.

    Catalogs that keep a pointer name them so.

    Readers tell a compressed file by its name, `00004-<unique>.gz.metadata.json`.
    """
    number = 0
    if previous_location is not None:
        match = _NUMBERED.match(previous_location.rpartition("/")[2])
        number = int(next(group for group in match.groups() if group)) + 1 if match else 1
    return f"{number:05d}-{unique}{_SUFFIX[codec]}"


def version_name(number: int, codec: str = "none") -> str:
    """`v4.metadata.json`, or `v4.gz.metadata.json`."""
    return f"v{number}{_SUFFIX[codec]}"


def create_resolved(storage: Storage, location: str, data: bytes) -> None:
    """Create-if-absent that also settles lost replies.

    Writing the same content again is harmless, so an unclear outcome is settled by trying again: if
    the file is there with this content, it is the one that this commit wanted to write.

    Raises:
        FileAlreadyExistsError: certainly not created: other content is there.
        StorageError: outcome "failed": certainly not created; otherwise still unclear.
    """
    unclear = False
    for attempt in range(_CREATE_ATTEMPTS):
        try:
            storage.create(location, data)
        except FileAlreadyExistsError:
            if unclear and _holds(storage, location, data):
                return
            raise
        except StorageError as error:
            if is_certain(error) and not unclear:
                raise
            unclear = unclear or not is_certain(error)
            if attempt + 1 == _CREATE_ATTEMPTS:
                raise StorageError(
                    error.message,
                    retryable=error.retryable,
                    location=location,
                    commit_outcome="unknown",
                ) from error
        else:
            return


def _holds(storage: Storage, location: str, data: bytes) -> bool:
    """Whether the file has this content.

    Raises:
        StorageError: outcome "unknown", whatever the storage says of the read
            itself: that a read certainly failed says nothing of the write before it.
    """
    try:
        return storage.read(location) == data
    except LakehouseError as error:
        raise StorageError(
            error.message, retryable=True, location=location, commit_outcome="unknown"
        ) from error


def delete_expired(storage: Storage, base: TableMetadata, new: TableVersion) -> None:
    """After a commit, delete metadata files that left the log, oldest first, if the table says so.

    Whatever the log says: only files named as metadata files are deleted, in the table's own
    folders, and none that is still in use under another spelling. Stops at the first failure.

    Raises:
        InvalidPropertyError, StorageError: what is left stays for orphan removal.
    """
    metadata = new.metadata
    if not TableProperties(metadata.properties).metadata_delete_after_commit:
        return
    folders = (metadata.location, metadata_folder(metadata))
    named = [new.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)]
    used = {canonical(file) for file in named if _is_own_metadata_file(file, folders)}
    for location in expired_metadata_files(base, metadata):
        if not _is_own_metadata_file(location, folders) or canonical(location) in used:
            continue
        report = storage.delete([location])
        if report.failed:
            raise StorageError(f"{location} cannot be deleted: {report.failed[location]}")


def discard(storage: Storage, location: str) -> None:
    """Delete a metadata file that was written for a commit that certainly did not happen."""
    try:
        storage.delete([location])
    except LakehouseError as error:
        log.warning("Left %s for orphan removal: %s", location, error)


def _is_own_metadata_file(location: str, folders: Sequence[str]) -> bool:
    return location.endswith(_ENDINGS) and any(lies_within(location, folder) for folder in folders)


def compression_of(metadata: Described) -> str:
    """`write.metadata.compression-codec`: none or gzip.

    None where the property names no codec, so that the commit that mends it succeeds.
    """
    try:
        return TableProperties(metadata.properties).metadata_compression
    except InvalidPropertyError:
        return "none"


def metadata_bytes(metadata: TableMetadata, codec: str = "none") -> bytes:
    """Serialized and compressed."""
    return serialize(metadata, codec=codec)


def read_view(storage: Storage, location: str) -> ViewMetadata:
    """Read one metadata file. Raises NoSuchFileError, CorruptMetadataError, StorageError."""
    return parse_view(storage.read(location), location)


def view_bytes(metadata: ViewMetadata) -> bytes:
    """The metadata file of a view, compressed as its properties say."""
    return serialize_view(metadata, codec=compression_of(metadata))


def next_view(
    base: StoredView,
    requirements: Sequence[AssertViewUUID],
    updates: Sequence[ViewUpdate],
    now_ms: int,
) -> ViewMetadata:
    """The metadata a commit would make; the base's own object when nothing changes.

    Raises CommitConflictError, InvalidInputError, each naming the view.
    """
    try:
        for requirement in requirements:
            requirement.check(base.metadata)
        return apply_view_updates(base.metadata, updates, now_ms=now_ms)
    except LakehouseError as error:
        raise type(error)(
            f"View {base.identifier}: {error.message}"
            if isinstance(error, CommitConflictError)
            else error.message,
            **{
                **error.context,
                "view": str(base.identifier),
                "commit_outcome": error.commit_outcome,
            },
        ) from error
