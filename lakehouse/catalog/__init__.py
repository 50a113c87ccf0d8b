"""Names of tables, and the compare-and-swap that makes a commit."""

from lakehouse.catalog.filesystem import FilesystemCatalog
from lakehouse.catalog.load import open_catalog
from lakehouse.catalog.protocol import Catalog, TableVersion
from lakehouse.catalog.sql import SqlCatalog

__all__ = ["Catalog", "FilesystemCatalog", "SqlCatalog", "TableVersion", "open_catalog"]
