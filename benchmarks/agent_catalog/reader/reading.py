"""What the reader makes of a text, and why it may make nothing."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Reading:
    """What the reader makes of a text.

    Attributes:
        sql: DuckDB's SQL; None for a refusal.
        tables: those that it took, also where it then refused.
        refusal: why it does not answer.
        warnings: what it would say beside the number.
    """

    sql: str | None
    tables: tuple[str, ...] = ()
    refusal: str = ""
    warnings: tuple[str, ...] = ()


class RefusedError(Exception):
    """The question cannot be answered from the text."""


class UnfitError(RefusedError):
    """This table or column cannot answer the question; another one may."""


@dataclass
class Plan:
    """A query while it is put together."""

    base: str
    where: list[str] = field(default_factory=list)
    joins: list[str] = field(default_factory=list)
    tables: dict[str, None] = field(default_factory=dict)
    joined: set[str] = field(default_factory=set)
    warnings: list[str] = field(default_factory=list)
