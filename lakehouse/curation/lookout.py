"""Looks at a lakehouse again and again: what nobody changed since is neither read nor judged again.

A look at an unchanged lakehouse asks the catalog for the newest version of each table, or for less
where it can say that nothing changed. After a commit only that table's metadata is gathered, and
only the statements that mention it are judged.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from lakehouse.curation.checkup import Survey
from lakehouse.curation.statement_store import (
    NAMESPACE,
    STATEMENTS,
    VERIFICATIONS,
    StatementStore,
)
from lakehouse.errors import NoSuchTableError
from lakehouse.lake import Lakehouse
from lakehouse.semantics.statements import Statement
from lakehouse.semantics.states import Verification
from lakehouse.table import Table

T = TypeVar("T")


class Lookout:
    """Surveys of one lakehouse, each made of the one before; for one thread at a time.

    >>> lookout = Lookout(lake)
    >>> first = lookout.look()
    >>> lookout.look().tables == first.tables
    True

    Args:
        lake: the lakehouse.
    """

    def __init__(self, lake: Lakehouse) -> None:
        self.lake = lake
        store = StatementStore(lake)
        self._mark: Hashable | None = None
        self._tables: dict[str, Table] = {}
        self._statements = _Kept[list[Statement]](store.statements, list)
        self._verifications = _Kept[dict[str, Verification]](store.verifications, dict)
        self._seen: Survey | None = None

    def look(self) -> Survey:
        """The lakehouse now; like `checkup.survey` of all tables."""
        now_ms = self.lake.environment.now_ms()
        mark = self.lake.catalog.change_mark()  # both of before anything is read
        if mark is None or mark != self._mark or self._seen is None:
            self._tables = self._newest()
            self._mark = mark
        tables = self._tables
        before = self._seen
        statements = self._statements.at(tables.get(STATEMENTS))
        if before is not None and statements is not before.statements:
            known = {one.statement_id: one for one in before.statements}
            # the same object for the same words: what is known of it is still known
            statements[:] = [
                old if (old := known.get(one.statement_id)) == one else one for one in statements
            ]
        found = {
            table.metadata.table_uuid: table
            for name, table in tables.items()
            if not name.startswith(f"{NAMESPACE}.")
        }
        verifications = dict(self._verifications.at(tables.get(VERIFICATIONS)))
        self._seen = Survey(self.lake, found, statements, verifications, now_ms, before)
        return self._seen

    def _newest(self) -> dict[str, Table]:
        """Each table by name; the same object where nothing was committed to it."""
        found = {}
        for name in self.lake.list_tables():
            try:
                found[name] = self._loaded(name)
            except NoSuchTableError:  # dropped since it was listed
                continue
        return found

    def _loaded(self, name: str) -> Table:
        known = self._tables.get(name)
        if known is not None and self.lake.catalog.refresh(known.version) is known.version:
            return known
        return self.lake.load_table(name)


class _Kept(Generic[T]):
    """What a table holds, read again when the table is another version."""

    def __init__(self, read: Callable[[], T], nothing: Callable[[], T]) -> None:
        self._read, self._nothing = read, nothing
        self._of: Table | None = None
        self._held = nothing()

    def at(self, table: Table | None) -> T:
        if table is None:
            self._of, self._held = None, self._nothing()
        elif table is not self._of:
            self._held, self._of = self._read(), table
        return self._held
