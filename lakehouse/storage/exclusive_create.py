"""Whether an object store keeps what `create` promises: some ignore `If-None-Match`."""

from __future__ import annotations

from lakehouse.errors import FileAlreadyExistsError, UnsupportedFeatureError
from lakehouse.storage.location import join
from lakehouse.storage.storage_protocol import Storage


def check_create_is_exclusive(storage: Storage, folder: str, name: str) -> None:
    """Create one object twice; the second time must be refused. Nothing stays.

    Args:
        storage: of the folder.
        folder: where commits are going to be.
        name: that no object has.

    Raises:
        UnsupportedFeatureError: it was not refused: of two commits at once one would be lost.
        StorageError: the store cannot be reached, or refuses to be written to.
    """
    location = join(folder, f".lakehouse-probe-{name}")
    storage.create(location, b"first")
    try:
        storage.create(location, b"second")
    except FileAlreadyExistsError:
        return
    finally:
        storage.delete([location])
    raise UnsupportedFeatureError(
        f"The object store of {folder} ignores If-None-Match: two writers would overwrite each "
        "other's commits. Use a SQL catalog, or a store that refuses to create an object twice.",
        location=folder,
    )
