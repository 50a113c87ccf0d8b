"""Keeps statements that were written down: bound to tables, read by somebody, checked, shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakehouse.curation.checkup import Checked, accept, check
from lakehouse.curation.standard_fields import standard_fields, write_standard_fields
from lakehouse.curation.statement_store import StatementStore
from lakehouse.curation.survey import survey
from lakehouse.lake import Lakehouse
from lakehouse.semantics.statements import Statement


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did.

    Attributes:
        checked: every statement of the lakehouse with its state now.
        documented: what was written into the tables' own fields.
    """

    checked: Sequence[Checked]
    documented: Sequence[str]


def keep_statements(
    lake: Lakehouse,
    statements: Sequence[Statement],
    by: str,
    *,
    replace: bool = True,
    documents: bool = True,
) -> Imported:
    """Keep statements, check all that there are, and write what holds into the tables' own fields.

    Args:
        lake: the lakehouse.
        statements: bound to its tables.
        by: who read them: what has no evidence is taken on their word.
        replace: whether other statements about the same tables go.
        documents: whether column docs, comments and owners of tables are written.
    """
    StatementStore(lake).put(statements, replace=replace)
    accept(lake, statements, by)
    checked, verifications = check(survey(lake))
    StatementStore(lake).record(verifications)
    written = write_standard_fields(lake, standard_fields(checked)) if documents else []
    return Imported(checked, written)
