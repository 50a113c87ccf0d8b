"""Databases of Glue."""

from __future__ import annotations

import re
from typing import Any

from lakehouse.catalog.glue.glue_client import GlueClient
from lakehouse.catalog.metastore_namespaces import Database, Missing, NotAllowed
from lakehouse.errors import InvalidInputError


class GlueDatabases:
    """Databases of Glue."""

    keeper = "Glue"
    name_pattern = re.compile("[a-z0-9_]{1,252}")
    """Glue keeps more, which Iceberg's Java and Athena do not open."""

    def __init__(self, client: GlueClient) -> None:
        self._client, self.uri = client, client.uri

    def names(self) -> list[str]:
        """All of them."""
        return [held["Name"] for held in self._client.all("get_databases", "DatabaseList")]

    def find(self, name: str) -> Database | None:
        """One; None where there is none."""
        try:
            held = self._client.ask("get_database", Name=name)["Database"]
        except Missing:
            return None
        fields = (held.get("LocationUri"), held.get("Description"), held.get("Parameters") or {})
        return Database(held["Name"], *fields)

    def create(self, database: Database) -> None:
        """Make one. Raises Taken."""
        self._client.call("create_database", DatabaseInput=_as_input(database))

    def replace(self, old: Database, new: Database) -> None:
        """Put it in place of the one of its name; of several who do, the last wins."""
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
