"""Where the tables of a database keep their files, so that no two of them share a folder."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator

from sqlalchemy import Connection

from lakehouse.catalog.folders import folder_name
from lakehouse.catalog.metadata_files import Described, metadata_folder, read_metadata, read_view
from lakehouse.catalog.sql.sql_database import Database
from lakehouse.errors import LakehouseError
from lakehouse.kept_by_bytes import KeptByBytes, bytes_of, short_only
from lakehouse.spec.identifier import dotted, split_name
from lakehouse.storage.location import parent
from lakehouse.storage.storage_protocol import Storage

log = logging.getLogger(__name__)

_KNOWN_BYTES_MAX = 4 * 1024 * 1024
_OWN_SUFFIX = re.compile("-[0-9a-f]{12}$")
_OWN_CHARACTERS = 13


class TableLocations:
    """Locations of every table and view in a database, whatever its catalog name.

    The database keeps the metadata file alone. Where that lies as tables of this name do by
    default, its folder tells the location; otherwise (`write.metadata.path`, renamed or registered
    tables) the metadata is read, once.
    """

    def __init__(self, database: Database, storage: Callable[[str], Storage]) -> None:
        self._database, self._storage = database, storage
        self._known: KeptByBytes[str, tuple[str, ...]] = KeptByBytes(_KNOWN_BYTES_MAX)

    def locations(
        self, connection: Connection, *, besides: str | None = None
    ) -> Iterator[tuple[str, str]]:
        """(name, folder) for each folder of a table or view.

        Its location, and its metadata where that is elsewhere.

        The table whose metadata file is `besides` is left out.
        """
        kind = "iceberg_type" if self._database.has_type_column(connection) else "NULL"
        rows = self._database.rows(
            connection,
            f"SELECT table_namespace, table_name, metadata_location, {kind} FROM iceberg_tables "
            "WHERE metadata_location IS NOT NULL",
        )
        for namespace, table, pointer, iceberg_type in (row for row in rows if row[2] != besides):
            for folder in self._folders(namespace, table, pointer, is_view=iceberg_type == "VIEW"):
                yield f"{namespace}.{dotted((table,))}", folder

    def _folders(
        self, namespace: str, table: str, pointer: str, *, is_view: bool
    ) -> tuple[str, ...]:
        folder = parent(pointer).removesuffix("/metadata")
        # every creation asks this of every table: plain comparisons, no pattern for each name
        usual = f"/{_namespace_path(namespace)}/{folder_name(table)}"
        own = folder.endswith(usual) or (
            _OWN_SUFFIX.search(folder) is not None and folder[:-_OWN_CHARACTERS].endswith(usual)
        )
        if own and folder != parent(pointer):
            return (folder,)
        folders = self._known.get(pointer)
        if folders is None:
            folders = self._read(pointer, folder, is_view=is_view)
            self._known.put(pointer, folders, bytes_of(pointer, folders))
        return folders

    def _read(self, pointer: str, folder: str, *, is_view: bool) -> tuple[str, ...]:
        read = read_view if is_view else read_metadata
        try:
            metadata: Described = read(self._storage(pointer), pointer)
        except LakehouseError as error:
            log.warning(
                "%s cannot be read, its folder is taken for the table's: %s", pointer, error
            )
            return (folder,)
        return tuple(dict.fromkeys((metadata.location, metadata_folder(metadata))))


@short_only(1024)
def _namespace_path(namespace: str) -> str:
    """The folders of a namespace, as the database has it, below the warehouse."""
    return "/".join(folder_name(level) for level in split_name(namespace))
