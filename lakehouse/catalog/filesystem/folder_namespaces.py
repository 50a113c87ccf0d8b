"""Namespaces as folders of a warehouse, with a small file for their properties."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import orjson

from lakehouse.catalog.base_catalog import Namespaces
from lakehouse.catalog.catalog_protocol import Namespace
from lakehouse.catalog.folders import in_own_folder_below, plain_folder
from lakehouse.errors import (
    CorruptMetadataError,
    FileAlreadyExistsError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchFileError,
    NoSuchNamespaceError,
)
from lakehouse.spec.identifier import dotted, parse_namespace
from lakehouse.storage.local import LocalStorage
from lakehouse.storage.location import join
from lakehouse.storage.storage_protocol import Storage

MARKER = ".namespace.json"


class FolderNamespaces(Namespaces):
    """Namespaces of a filesystem catalog.

    A folder is a namespace when it has the marker file, or (as other engines leave it) holds a live
    table or nothing at all, not even folders that a table was to have.

    Args:
        warehouse: the root.
        storage: keeps it.
        is_live: whether a folder is a table.
        is_table_folder: whether a folder is, or was, a table.
    """

    def __init__(
        self,
        warehouse: str,
        storage: Storage,
        is_live: Callable[[str], bool],
        is_table_folder: Callable[[str], bool],
    ) -> None:
        self._warehouse, self._storage, self._is_live, self._is_table_folder = (
            warehouse,
            storage,
            is_live,
            is_table_folder,
        )

    def folder(self, namespace: Namespace) -> str:
        """Where a namespace is. Raises InvalidIdentifierError for a name that could escape."""
        return plain_folder(self._warehouse, parse_namespace(namespace) if namespace else ())

    def require(self, namespace: Namespace) -> str:
        """Its folder. Raises NoSuchNamespaceError."""
        folder = self.folder(namespace)
        if not self.exists(namespace):
            raise NoSuchNamespaceError(
                f"No namespace {dotted(namespace)} in {self._warehouse}.",
                namespace=dotted(namespace),
            )
        return folder

    def exists(self, namespace: Namespace) -> bool:
        """Whether the name is a namespace; the root always is."""
        folder = self.folder(namespace)
        if not namespace or self._storage.exists(join(folder, MARKER)):
            return True
        parent = self.folder(namespace[:-1])
        if namespace[-1] not in self._storage.list_folders(parent) or self._is_table_folder(folder):
            return False
        return self._holds_table(folder) or self._is_empty(folder)

    def create(self, namespace: Namespace, properties: Mapping[str, str]) -> None:
        """Create the namespace and its parents."""
        folder, name = self.folder(namespace), dotted(namespace)
        for depth in range(1, len(namespace)):
            if not self.exists(namespace[:depth]):
                self._create_marker(namespace[:depth], {})
        if not namespace or self.exists(namespace):
            raise NamespaceAlreadyExistsError(f"Namespace {name} exists.", namespace=name)
        if self._is_live(folder):
            raise NamespaceAlreadyExistsError(f"{name} is a table.", namespace=name)
        if not self._create_marker(namespace, properties):
            raise NamespaceAlreadyExistsError(f"Namespace {name} exists.", namespace=name)

    def drop(self, namespace: Namespace) -> None:
        """Drop the namespace if empty; files of tables dropped without purge stay."""
        folder, name = self.require(namespace), dotted(namespace)
        for child in self._storage.list_folders(folder):
            if self._is_live(join(folder, child)) or self.exists((*namespace, child)):
                raise NamespaceNotEmptyError(
                    f"Namespace {name} still holds {child}: drop it first.", namespace=name
                )
        self._storage.delete([join(folder, MARKER)])
        if isinstance(self._storage, LocalStorage):
            self._storage.remove_folders(folder)

    def children(self, parent: Namespace) -> list[Namespace]:
        folder = self.require(parent)
        return [
            (*parent, name)
            for name in self._storage.list_folders(folder)
            if self._is_name(name) and self.exists((*parent, name))
        ]

    def properties(self, namespace: Namespace) -> Mapping[str, str]:
        marker = join(self.require(namespace), MARKER)
        try:
            content = orjson.loads(self._storage.read(marker))
        except NoSuchFileError:
            return {}
        except orjson.JSONDecodeError as error:
            raise CorruptMetadataError(
                f"{marker} is not JSON: {error}. Delete it to forget the properties."
            ) from error
        return {str(key): str(value) for key, value in content.items()}

    def update_properties(
        self, namespace: Namespace, updates: Mapping[str, str], removals: Sequence[str]
    ) -> Mapping[str, str]:
        """Set and remove; the last writer wins."""
        kept = {
            key: value
            for key, value in self.properties(namespace).items()
            if key not in set(removals)
        }
        changed = {**kept, **updates}
        self._storage.write(join(self.folder(namespace), MARKER), orjson.dumps(changed))
        return changed

    def _create_marker(self, namespace: Namespace, properties: Mapping[str, str]) -> bool:
        try:
            self._storage.create(
                join(self.folder(namespace), MARKER), orjson.dumps(dict(properties))
            )
        except FileAlreadyExistsError:
            return False
        return True

    def _is_empty(self, folder: str) -> bool:
        """Whether nothing is there, nor was anybody about to make a table of that name."""
        return next(iter(self._storage.list(folder)), None) is None and not any(
            in_own_folder_below(join(folder, name), folder)
            for name in self._storage.list_folders(folder)
        )

    def _holds_table(self, folder: str) -> bool:
        for name in self._storage.list_folders(folder):
            below = join(folder, name)
            if self._is_live(below) or (
                not self._is_table_folder(below) and self._holds_table(below)
            ):
                return True
        return False

    @staticmethod
    def _is_name(name: str) -> bool:
        return not name.startswith(".") and "." not in name and name == name.strip()
