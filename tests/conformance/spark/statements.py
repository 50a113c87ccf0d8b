"""The whole list, in the order of the documentation."""

from __future__ import annotations

from tests.conformance.spark import reads_list, tables_list, writes_list

CASES = [*tables_list.CASES, *writes_list.CASES, *reads_list.CASES]
