"""What the two sides of a comparison are made of: columns, constants and functions of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyiceberg.types import IcebergType


@dataclass(frozen=True, slots=True)
class Column:
    """A field of the schema that no list or map holds, or a metadata column.

    Attributes:
        field_id: in the schema.
        path: names from the root of the schema to the field.
        type: of the field.
    """

    field_id: int
    path: tuple[str, ...]
    type: IcebergType


@dataclass(frozen=True, slots=True)
class Value:
    """A constant in a filter.

    Attributes:
        value: None is null. With a type an Iceberg internal value, for `in` a tuple of them.
        type: None for a literal as it was written (`literals.Literal`): a number or a text takes
            the type of what it meets.
    """

    value: Any
    type: IcebergType | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A function (`functions.FUNCTIONS`) of terms.

    Attributes:
        name: of the function or operator.
        args: what it is applied to.
        type: of the result.
    """

    name: str
    args: tuple[Term, ...]
    type: IcebergType


Term = Column | Value | Call


def columns_of(term: Term) -> Iterator[Column]:
    """Every column in a term, left to right."""
    if isinstance(term, Column):
        yield term
    elif isinstance(term, Call):
        for one in term.args:
            yield from columns_of(one)
