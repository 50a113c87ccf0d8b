"""The table as users meet it: verbs over scan, transaction, evolution, maintenance, inspect."""

from lakehouse.table.row_write import WrittenFiles
from lakehouse.table.scan import Changelog, TableScan
from lakehouse.table.table import Table
from lakehouse.table.write_result import WriteResult

__all__ = ["Changelog", "Table", "TableScan", "WriteResult", "WrittenFiles"]
