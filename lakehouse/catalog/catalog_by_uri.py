"""Opening a catalog by its URI."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import cast

from lakehouse.catalog.catalog_protocol import Catalog
from lakehouse.catalog.filesystem.filesystem_catalog import FilesystemCatalog
from lakehouse.catalog.redaction import hide_in_urls
from lakehouse.environment import Environment
from lakehouse.errors import InvalidInputError
from lakehouse.spec.identifier import full_uri
from lakehouse.storage.location import canonical

_REST = ("http", "https")
_SQL = ("sqlite", "postgresql", "postgres")
_HIVE = ("hms", "thrift")
_JDBC = (
    "URLs of JDBC are not opened here. Open its database as sqlite:///FILE or "
    "postgresql+psycopg://..., with the name that its rows have as name=..."
)
_METASTORES = {
    "hive": ("lakehouse.catalog.metastores.hive_catalog", "HiveCatalog"),
    "glue": ("lakehouse.catalog.metastores.glue_catalog", "GlueCatalog"),
}


def open_catalog(
    uri: str,
    *,
    warehouse: str | None = None,
    name: str = "lakehouse",
    environment: Environment | None = None,
    **properties: str,
) -> Catalog:
    """Open (and where it is new, create) a catalog.

    Args:
        uri: a folder (`/data/warehouse`, `file:///data/warehouse`, `s3://bucket/prefix`,
            `memory://name`) for a filesystem catalog; `sqlite:///...` or `postgresql+psycopg://...`
            for a SQL catalog; `http(s)://...` for a REST catalog; `hms://host:9083` for a Hive
            Metastore; `glue://REGION` for Glue. A relative path is in the working directory.
        warehouse: location below which tables are created; needed by SQL catalogs, the uri itself
            for filesystem catalogs. For REST catalogs the name that the server knows it by, or a
            location, outside which no table is written then; the server's own where it is missing,
            and so for Hive Metastores and Glue.
        name: the catalog's name; with a SQL catalog also `catalog_name` in its tables.
        environment: clock and ids.
        properties: catalog and storage properties (`s3.endpoint`, `allowed-locations`, ...).

    Raises:
        InvalidInputError: the uri names no catalog, or the warehouse is missing or contradicts it.
    """
    kind = kind_of(uri)
    refused = not_opened(_scheme(uri))
    if refused is not None:
        raise InvalidInputError(f"{hide_in_urls(uri)}: {refused}")
    if kind == "sql":
        if warehouse is None:
            raise InvalidInputError(
                "A SQL catalog needs a warehouse: the location below which tables are created."
            )
        return _catalog_class("lakehouse.catalog.sql.sql_catalog", "SqlCatalog")(
            uri, absolute(warehouse), name=name, properties=properties, environment=environment
        )
    if kind == "rest":
        return _catalog_class("lakehouse.catalog.rest.rest_catalog", "RestCatalog")(
            uri, warehouse, name=name, properties=properties, environment=environment
        )
    if kind in _METASTORES:
        return _catalog_class(*_METASTORES[kind])(
            uri,
            None if warehouse is None else absolute(warehouse),
            name=name,
            properties=properties,
            environment=environment,
        )
    if hide_in_urls(uri) != uri:
        raise InvalidInputError(
            f"A folder has no password or token in its URL: {hide_in_urls(uri)}. Give them as "
            "properties of the catalog, such as s3.secret-access-key."
        )
    root = absolute(uri)
    if warehouse is not None and canonical(absolute(warehouse)) != canonical(root):
        raise InvalidInputError(
            f"A filesystem catalog is its warehouse: {hide_in_urls(uri)} is not "
            f"{hide_in_urls(warehouse)}. Leave the warehouse out, or use a SQL catalog."
        )
    return FilesystemCatalog(root, name=name, properties=properties, environment=environment)


def kind_of(uri: str) -> str:
    """`sql`, `rest`, `hive`, `glue`, or `filesystem` for a folder, which is its own warehouse."""
    scheme = _scheme(uri)
    kinds = {"sql": _SQL, "rest": _REST, "hive": _HIVE, "glue": ("glue",)}
    return next((kind for kind, schemes in kinds.items() if scheme in schemes), "filesystem")


def not_opened(kind: str) -> str | None:
    """Why a catalog of this scheme or type is not opened, and the way out; None where it may be."""
    return _JDBC if kind == "jdbc" else None


def _scheme(uri: str) -> str:
    return uri.partition(":")[0].partition("+")[0].lower() if ":" in uri else ""


def _catalog_class(module: str, name: str) -> Callable[..., Catalog]:
    """Load a catalog's class only when it is used: its libraries take a second to import."""
    try:
        return cast("Callable[..., Catalog]", getattr(importlib.import_module(module), name))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "thrift":
            raise
        raise InvalidInputError(
            "Hive Metastores are asked by thrift: pip install 'pylakehouse[hive]'."
        ) from error


def absolute(location: str) -> str:
    """The URI of a location as a person writes it: a relative path is in the working directory."""
    if ":" in location.partition("/")[0]:
        return full_uri(location)
    return full_uri(str(Path(location).expanduser().absolute().resolve()))
