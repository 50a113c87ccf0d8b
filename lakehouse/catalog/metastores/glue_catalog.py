"""Catalog in the Glue Data Catalog, as Iceberg's Java and pyiceberg keep it there.

As in Iceberg's Java, a swap names the version of the table that it replaces (`VersionId`), and Glue
refuses it where another one is current. Glue has no views of Iceberg's, no rename and no deletion
of a version that is named: see `_move`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from lakehouse.catalog.metadata_files import Described
from lakehouse.catalog.metastores.glue_client import GlueClient
from lakehouse.catalog.metastores.metastore import hive_type
from lakehouse.catalog.metastores.metastore_catalog import (
    Database,
    Databases,
    MetastoreCatalog,
    Missing,
    NotAllowed,
    Overtaken,
    Refusal,
)
from lakehouse.catalog.metastores.metastore_pointers import (
    LOCATION,
    PREVIOUS,
    TYPE,
    TYPES,
    KeptTable,
    MetastorePointers,
)
from lakehouse.catalog.pointers import TABLE, VIEW, Kind, PointerMove
from lakehouse.environment import Environment
from lakehouse.errors import InvalidInputError, StorageError, UnsupportedFeatureError
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.table_properties import boolean
from lakehouse.storage.storage_by_scheme import storage_for
from lakehouse.storage.storage_protocol import Storage


class GlueDatabases(Databases):
    """Databases of Glue."""

    keeper = "Glue"
    name_pattern = re.compile("[a-z0-9_]{1,252}")
    """Glue keeps more, which Iceberg's Java and Athena do not open."""

    def __init__(self, client: GlueClient) -> None:
        self._client, self.uri = client, client.uri

    def names(self) -> list[str]:
        return [held["Name"] for held in self._client.all("get_databases", "DatabaseList")]

    def find(self, name: str) -> Database | None:
        try:
            held = self._client.ask("get_database", Name=name)["Database"]
        except Missing:
            return None
        fields = (held.get("LocationUri"), held.get("Description"), held.get("Parameters") or {})
        return Database(held["Name"], *fields)

    def create(self, database: Database) -> None:
        self._client.call("create_database", DatabaseInput=_as_input(database))

    def replace(self, old: Database, new: Database) -> None:
        self._client.ask("update_database", Name=old.name, DatabaseInput=_as_input(new))

    def drop(self, name: str) -> None:
        """Forget an empty one: Glue would forget its tables, too. Raises Missing, NotAllowed."""
        tables = self._client.ask("get_tables", DatabaseName=name, MaxResults=1)["TableList"]
        if tables:
            raise NotAllowed(f"it has tables, such as {tables[0]['Name']}")
        self._client.call("delete_database", Name=name)

    def default_location(self, name: str) -> str:
        """Nowhere. Raises InvalidInputError."""
        raise InvalidInputError(
            f"{self.uri}: database {name} has no location, and the catalog no warehouse. Set the "
            "namespace's property location, or open the catalog with warehouse=..."
        )


def _as_input(database: Database) -> dict[str, Any]:
    fields = {"LocationUri": database.location, "Description": database.comment}
    given = {name: value for name, value in fields.items() if value}
    return {"Name": database.name, "Parameters": dict(database.parameters), **given}


_KEPT = (
    *("Name", "Description", "Owner", "LastAccessTime", "LastAnalyzedTime", "Retention"),
    *("StorageDescriptor", "PartitionKeys", "ViewOriginalText", "ViewExpandedText", "TableType"),
    *("Parameters", "TargetTable"),
)
"""What a table that is read and one that is written have in common."""
_COMMENT_MAX = 255


class GluePointers(MetastorePointers):
    """Metadata locations of the tables of Glue; of views it has none.

    Args:
        client: asks Glue.
        properties: of the catalog: `glue.skip-archive` (true).
        databases: of Glue.
        storage: the storage of a location.
        kind: which of both.
    """

    def __init__(
        self,
        client: GlueClient,
        properties: Mapping[str, str],
        databases: GlueDatabases,
        storage: Callable[[str], Storage],
        kind: Kind = TABLE,
    ) -> None:
        super().__init__(databases, storage, kind)
        self._client = client
        self._skips_archive = boolean(properties.get("glue.skip-archive", "true"))

    def _kept(self, database: str, name: str) -> KeptTable | None:
        try:
            return _kept(self._client.ask("get_table", DatabaseName=database, Name=name)["Table"])
        except Missing:
            return None

    def _all_kept(self, database: str) -> list[KeptTable]:
        try:
            return list(
                map(_kept, self._client.all("get_tables", "TableList", DatabaseName=database))
            )
        except Missing:
            return []

    def _guarded(
        self,
        identifier: Identifier,  # noqa: ARG002
        properties: Mapping[str, str],  # noqa: ARG002
    ) -> AbstractContextManager[None]:
        return nullcontext()

    def _description(
        self,
        move: PointerMove,
        new: Described,
        present: KeptTable | None,
        guard: None,  # noqa: ARG002
    ) -> dict[str, Any]:
        if not isinstance(new, TableMetadata):
            raise UnsupportedFeatureError(
                f"View {move.identifier}: no engine keeps Iceberg's views in Glue's own interface. "
                "Keep it in a REST or SQL catalog, or make a view of the engine that asks it."
            )
        kept: dict[str, Any] = {"Name": move.identifier.name, "TableType": "EXTERNAL_TABLE"}
        kept = kept if present is None else _writable(present)
        parameters = {**(kept.get("Parameters") or {}), LOCATION: move.location}
        parameters[TYPE] = TYPES[self._kind.iceberg_type].upper()
        if move.expected is not None:
            parameters[PREVIOUS] = move.expected
        storage = dict(kept.get("StorageDescriptor") or {})
        comments = {one["Name"]: one.get("Comment") for one in storage.get("Columns") or ()}
        storage |= {"Columns": _columns(new, comments), "Location": new.location}
        if "comment" in new.properties:
            kept["Description"] = new.properties["comment"]
        return {**kept, "Parameters": parameters, "StorageDescriptor": storage}

    def _insert(self, identifier: Identifier, description: dict[str, Any]) -> None:
        self._client.call(
            "create_table", DatabaseName=identifier.namespace[0], TableInput=description
        )

    def _replace(
        self,
        identifier: Identifier,
        description: dict[str, Any],
        present: KeptTable,
        guard: None,  # noqa: ARG002
    ) -> None:
        self._client.call(
            "update_table",
            DatabaseName=identifier.namespace[0],
            TableInput=description,
            SkipArchive=self._skips_archive,
            VersionId=present.held["VersionId"],
        )

    def _delete(self, identifier: Identifier, guard: None) -> None:  # noqa: ARG002
        self._client.call(
            "delete_table", DatabaseName=identifier.namespace[0], Name=identifier.name
        )

    def _move(
        self, present: KeptTable, source: Identifier, target: Identifier, guard: None
    ) -> None:
        """A table of the other name, then none of this one; back where somebody commits between."""
        try:
            self._insert(target, {**_writable(present), "Name": target.name})
        except StorageError:
            if self.find(target) != present.parameters[LOCATION]:
                raise
        error: Exception = Overtaken("it was committed to meanwhile")
        now = self._kept(source.namespace[0], source.name)
        if now is not None and now.held["VersionId"] == present.held["VersionId"]:
            try:
                self._delete(source, guard)
            except (Refusal, StorageError) as failure:
                error = failure
            else:
                return
        if self._kept(source.namespace[0], source.name) is not None:
            self._delete(target, guard)
            raise error


def _kept(held: dict[str, Any]) -> KeptTable:
    folder = (held.get("StorageDescriptor") or {}).get("Location")
    return KeptTable(held["Name"], held.get("Parameters") or {}, folder, held)


def _writable(present: KeptTable) -> dict[str, Any]:
    return {name: present.held[name] for name in _KEPT if present.held.get(name) is not None}


def _columns(metadata: TableMetadata, comments: Mapping[str, str | None]) -> list[dict[str, Any]]:
    """Those of the current schema, then those that only older ones have, as Java writes them."""
    columns: dict[str, dict[str, Any]] = {}
    current = metadata.schema()
    for schema in (current, *metadata.schemas):
        for field in schema.fields:
            if field.name in columns:
                continue
            comment = field.doc or comments.get(field.name)
            columns[field.name] = {
                "Name": field.name,
                "Type": hive_type(field.field_type, "timestamp"),
                **({"Comment": comment[:_COMMENT_MAX]} if comment else {}),
                "Parameters": {
                    "iceberg.field.id": str(field.field_id),
                    "iceberg.field.optional": str(not field.required).lower(),
                    "iceberg.field.current": str(schema is current).lower(),
                },
            }
    return list(columns.values())


class GlueCatalog(MetastoreCatalog):
    """Catalog in Glue, through its own interface.

    Args:
        uri: `glue://REGION`; `glue://`: the region of AWS's tools.
        warehouse: location below which new namespaces and tables lie, and outside which no table is
            written; None: each database has to have a location.
        name: for display.
        properties: catalog and storage properties: `glue.id`, `glue.endpoint`, `glue.skip-archive`,
            keys and region as `GlueClient` says, `catalog.retry-timeout-ms`.
        environment: clock and unique names.
        storage_factory: makes storages.
    """

    def __init__(
        self,
        uri: str,
        warehouse: str | None,
        *,
        name: str = "lakehouse",
        properties: Mapping[str, str] | None = None,
        environment: Environment | None = None,
        storage_factory: Callable[[str, Mapping[str, str]], Storage] = storage_for,
    ) -> None:
        super().__init__(warehouse or "", name, properties, environment, storage_factory)
        client = GlueClient(uri, self._properties, self._environment)
        databases = GlueDatabases(client)
        parts = (client, self._properties, databases, self.storage)
        self._keep_in(databases, GluePointers(*parts), GluePointers(*parts, VIEW))
