"""The table as users meet it: a thin facade over scan, transaction, evolution, maintenance and inspect."""

from lakehouse.table.rows import WrittenFiles
from lakehouse.table.scan import TableScan
from lakehouse.table.table import Table

__all__ = ["Table", "TableScan", "WrittenFiles"]
