"""Views of a filesystem catalog: folders of `v<N>.metadata.json`, as tables are.

Whoever makes a table or a view of a name creates the same file, so that a name is one of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from lakehouse.catalog.commit_outcome import before_the_swap
from lakehouse.catalog.confinement import check_locations
from lakehouse.catalog.filesystem.folder_namespaces import FolderNamespaces
from lakehouse.catalog.filesystem.version_files import (
    VersionFiles,
    VersionKind,
    drop_record,
    kind_of,
    require_number,
)
from lakehouse.catalog.folders import in_own_folder_below, plain_folder
from lakehouse.catalog.metadata_files import next_view, read_view
from lakehouse.catalog.view_protocol import StoredView, Views
from lakehouse.environment import Environment
from lakehouse.errors import (
    CommitConflictError,
    InvalidLocationError,
    NoSuchViewError,
    TableAlreadyExistsError,
    UnsupportedFeatureError,
    ViewAlreadyExistsError,
)
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.views.view_json import parse_view, serialize_view
from lakehouse.spec.views.view_metadata import ViewMetadata
from lakehouse.spec.views.view_updates import AssertViewUUID, ViewUpdate
from lakehouse.storage.location import canonical
from lakehouse.storage.storage_protocol import Storage


class FilesystemViews(Views):
    """The views of a warehouse.

    Args:
        versions: the version files of its folders.
        storage: keeps them.
        namespaces: of the catalog.
        warehouse: the root.
        roots: below which views may be.
        environment: clock and unique names.
    """

    def __init__(
        self,
        versions: VersionFiles,
        storage: Storage,
        namespaces: FolderNamespaces,
        warehouse: str,
        roots: tuple[str, ...],
        environment: Environment,
    ) -> None:
        self._versions, self._store, self._namespaces = versions, storage, namespaces
        self._warehouse, self._roots, self._environment = warehouse, roots, environment

    def names(self, namespace: tuple[str, ...]) -> list[Identifier]:
        folder = self._namespaces.require(namespace)
        views = (Identifier(namespace, name) for name in self._store.list_folders(folder))
        return [view for view in views if self.exists(view)]

    def exists(self, identifier: Identifier) -> bool:
        return self._versions.newest_and_kind(self._folder(identifier))[1] is VersionKind.VIEW

    def load(self, identifier: Identifier) -> StoredView:
        newest = self._versions.read_newest(self._folder(identifier), self._store.read)
        if newest is None or kind_of(newest[2]) is not VersionKind.VIEW:
            raise NoSuchViewError(
                f"No view {identifier} in {self._warehouse}.", view=str(identifier)
            )
        _, location, data = newest
        self._store.make_name_durable(location)  # its writer may stop before it does so itself
        return StoredView(identifier, parse_view(data, location), location)

    def create(self, identifier: Identifier, metadata: ViewMetadata) -> StoredView:
        folder = self._folder(identifier)
        if canonical(metadata.location) != canonical(folder) and not in_own_folder_below(
            metadata.location, folder
        ):
            raise InvalidLocationError(
                f"View {identifier} must be at {folder}, not {metadata.location}: a filesystem "
                "catalog finds views by folder. Use a SQL catalog for other locations.",
                view=str(identifier),
            )
        return self._create(identifier, metadata)

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
            self.load(base.identifier)
        return self._swap(base.identifier, require_number(base.metadata_location) + 1, new)

    def drop(self, identifier: Identifier) -> None:
        folder = self._folder(identifier)
        while True:
            number = require_number(self.load(identifier).metadata_location) + 1
            record = drop_record(self._environment.now_ms(), str(self._environment.new_uuid()))
            location = self._versions.location(folder, number)
            try:
                self._versions.swap(f"View {identifier}", location, record, view=str(identifier))
            except CommitConflictError:
                continue
            self._versions.write_hint(folder, number)
            return

    def rename(self, source: Identifier, target: Identifier) -> None:
        """Refused: the folder is the name."""
        raise UnsupportedFeatureError(
            f"View {source} cannot be renamed to {target}: in a filesystem catalog the folder is "
            "the name. Use a SQL catalog.",
            view=str(source),
        )

    def register(self, identifier: Identifier, metadata_location: str) -> StoredView:
        """Take an existing metadata file for a view: its content becomes the first version."""
        return self._create(identifier, read_view(self._store, metadata_location))

    def _create(self, identifier: Identifier, metadata: ViewMetadata) -> StoredView:
        self._namespaces.require(identifier.namespace)
        check_locations(metadata, self._roots)
        if self._namespaces.exists((*identifier.namespace, identifier.name)):
            raise ViewAlreadyExistsError(f"{identifier} is a namespace.", view=str(identifier))
        folder = self._folder(identifier)
        newest, kind = self._versions.newest_and_kind(folder)
        check_free(identifier, kind, VersionKind.VIEW)
        try:
            return self._swap(identifier, 1 if newest is None else newest + 1, metadata)
        except CommitConflictError as error:
            check_free(identifier, self._versions.newest_and_kind(folder)[1], VersionKind.VIEW)
            raise ViewAlreadyExistsError(
                f"View {identifier} was created by someone else.", view=str(identifier)
            ) from error

    def _swap(self, identifier: Identifier, number: int, metadata: ViewMetadata) -> StoredView:
        folder = self._folder(identifier)
        location = self._versions.location(folder, number)
        data = serialize_view(metadata)
        self._versions.swap(f"View {identifier}", location, data, view=str(identifier))
        self._versions.write_hint(folder, number)
        return StoredView(identifier, metadata, location)

    def _folder(self, identifier: Identifier) -> str:
        return plain_folder(self._warehouse, (*identifier.namespace, identifier.name))


def check_free(identifier: Identifier, present: VersionKind, wanted: VersionKind) -> None:
    """Raise TableAlreadyExistsError or ViewAlreadyExistsError where a folder is one of them."""
    kind = {"other_kind": present is not wanted}
    if present is VersionKind.TABLE:
        raise TableAlreadyExistsError(f"Table {identifier} exists.", table=str(identifier), **kind)
    if present is VersionKind.VIEW:
        raise ViewAlreadyExistsError(f"View {identifier} exists.", view=str(identifier), **kind)
