"""Names of tables, and the compare-and-swap that makes a commit."""

from lakehouse.catalog.catalog_by_uri import open_catalog
from lakehouse.catalog.catalog_protocol import Catalog, TableVersion
from lakehouse.catalog.filesystem.filesystem_catalog import FilesystemCatalog

__all__ = ["Catalog", "FilesystemCatalog", "TableVersion", "open_catalog"]
