"""Filters on rows turned into filters on partition values (spec: Scan Planning)."""

from __future__ import annotations

from pyiceberg.partitioning import PartitionSpec

from lakehouse.expressions.bound import Bound
from lakehouse.spec.field_types import FieldTypes


def project(where: Bound, spec: PartitionSpec, types: FieldTypes, *, strict: bool = False) -> Bound:
    """A filter on partition values: its leaves carry partition field ids and partition values.

    Inclusive (default): true for every partition that may hold a matching row. Strict: true only for partitions in which every row
    matches. Transforms that are not understood project to true (inclusive) or false (strict).
    """
    raise AssertionError(where, spec, types, strict)
