"""Names of tables, and the compare-and-swap that makes a commit."""

from lakehouse.catalog.filesystem import FilesystemCatalog
from lakehouse.catalog.load import open_catalog
from lakehouse.catalog.protocol import Catalog, TableVersion

__all__ = ["Catalog", "FilesystemCatalog", "TableVersion", "open_catalog"]
