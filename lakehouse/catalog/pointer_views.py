"""Views of a catalog that keeps a pointer to the metadata file of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lakehouse.catalog.commit_outcome import before_the_swap, is_certain
from lakehouse.catalog.confinement import check_locations
from lakehouse.catalog.metadata_files import (
    compression_of,
    discard,
    metadata_folder,
    next_view,
    numbered_name,
    read_view,
    view_bytes,
)
from lakehouse.catalog.pointers import NamedNamespaces, PointerMove, Pointers
from lakehouse.catalog.view_protocol import StoredView, Views
from lakehouse.environment import Environment
from lakehouse.errors import LakehouseError
from lakehouse.spec.identifier import Identifier, full_uri
from lakehouse.spec.views.view_metadata import ViewMetadata
from lakehouse.spec.views.view_updates import AssertViewUUID, ViewUpdate
from lakehouse.storage.location import is_within, join
from lakehouse.storage.storage_protocol import Storage


class PointerViews(Views):
    """The views of one catalog.

    Args:
        pointers: of the views.
        namespaces: of the catalog.
        storage: the storage of a location.
        roots: below which views may be.
        environment: clock and unique names.
    """

    def __init__(
        self,
        pointers: Pointers,
        namespaces: NamedNamespaces,
        storage: Callable[[str], Storage],
        roots: tuple[str, ...],
        environment: Environment,
    ) -> None:
        self._pointers, self._namespaces, self._storage = pointers, namespaces, storage
        self._roots, self._environment = roots, environment

    def names(self, namespace: tuple[str, ...]) -> list[Identifier]:
        names = self._pointers.names(self._namespaces.require(namespace))
        return [Identifier(tuple(namespace), name) for name in names]

    def exists(self, identifier: Identifier) -> bool:
        return self._pointers.find(identifier) is not None

    def load(self, identifier: Identifier) -> StoredView:
        location = self._pointers.require(identifier)
        return StoredView(identifier, read_view(self._storage(location), location), location)

    def create(self, identifier: Identifier, metadata: ViewMetadata) -> StoredView:
        check_locations(metadata, self._roots)
        self._namespaces.require(identifier.namespace)
        self._pointers.check_free(identifier, metadata.location)
        self._check_new_folders(identifier, metadata, [])
        return self._write_and_swap(identifier, metadata, None)

    def commit(
        self,
        base: StoredView,
        requirements: Sequence[AssertViewUUID],
        updates: Sequence[ViewUpdate],
    ) -> StoredView:
        with before_the_swap():
            new = next_view(base, requirements, updates, self._environment.now_ms())
            if new is base.metadata:
                return base
            check_locations(new, self._roots)
            own = [base.metadata.location, metadata_folder(base.metadata)]
            self._check_new_folders(base.identifier, new, own)
        return self._write_and_swap(base.identifier, new, base)

    def drop(self, identifier: Identifier) -> None:
        if not self._pointers.remove(identifier):
            raise self._pointers.missing(identifier)

    def rename(self, source: Identifier, target: Identifier) -> None:
        self._namespaces.require(target.namespace)
        self._pointers.rename(source, target)

    def register(self, identifier: Identifier, metadata_location: str) -> StoredView:
        metadata_location = full_uri(metadata_location)
        metadata = read_view(self._storage(metadata_location), metadata_location)
        check_locations(metadata, self._roots)
        self._namespaces.require(identifier.namespace)
        self._pointers.check_free(identifier, metadata.location)
        self._pointers.swap(
            [PointerMove(identifier, None, metadata_location, metadata.location, metadata)]
        )
        return StoredView(identifier, metadata, metadata_location)

    def _check_new_folders(
        self, identifier: Identifier, metadata: ViewMetadata, own: Sequence[str]
    ) -> None:
        """What lies in a table's folders is deleted as an orphan of the table."""
        folders = {metadata.location, metadata_folder(metadata)}
        new = [folder for folder in folders if not any(is_within(folder, known) for known in own)]
        if new:
            self._pointers.check_folders(identifier, new)

    def _write_and_swap(
        self, identifier: Identifier, metadata: ViewMetadata, base: StoredView | None
    ) -> StoredView:
        expected, old = (None, None) if base is None else (base.metadata_location, base.metadata)
        unique = str(self._environment.new_uuid())
        name = numbered_name(expected, unique, compression_of(metadata))
        location = join(metadata_folder(metadata), name)
        storage = self._storage(location)
        with before_the_swap():
            storage.create(location, view_bytes(metadata))
        try:
            folder = metadata.location
            self._pointers.swap(
                [PointerMove(identifier, expected, location, folder, metadata, old)]
            )
        except LakehouseError as error:
            if is_certain(error):
                discard(storage, location)
            raise
        return StoredView(identifier, metadata, location)
