"""Metadata files of views, and what a commit makes of one."""

from __future__ import annotations

from collections.abc import Sequence

from lakehouse.catalog.metadata_files import compression_of
from lakehouse.catalog.view_protocol import StoredView
from lakehouse.errors import CommitConflictError, LakehouseError
from lakehouse.spec.views.view_json import parse_view, serialize_view
from lakehouse.spec.views.view_metadata import ViewMetadata
from lakehouse.spec.views.view_updates import AssertViewUUID, ViewUpdate, apply_view_updates
from lakehouse.storage.storage_protocol import Storage


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
            **{**error.context, "view": str(base.identifier)},
        ) from error
