"""Whether anybody changed a SQLite database, and single rows of it, without SQLAlchemy's cost."""

from __future__ import annotations

import itertools
import sqlite3
import threading
from collections.abc import Mapping
from typing import Any

_generations = itertools.count()


class SqliteChanges:
    """Looks at a database by a connection of its own. Safe between threads; never waits.

    >>> import sqlite3
    >>> changes = SqliteChanges(f"{folder}/any.db")
    >>> before = changes.mark()
    >>> before == changes.mark()
    True
    >>> _ = sqlite3.connect(f"{folder}/any.db").execute("CREATE TABLE t (x)")
    >>> before == changes.mark()
    False

    Args:
        path: of the database.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._generation = 0

    def mark(self) -> tuple[int, int] | None:
        """What changes whenever any connection commits; None where that cannot be told now."""
        found = self.rows("PRAGMA data_version", {})
        return None if found is None else (self._generation, int(found[0][0]))

    def rows(self, statement: str, values: Mapping[str, str]) -> list[Any] | None:
        """What a query finds; None where that cannot be told now.

        Args:
            statement: of SQL.
            values: of its parameters, `:name`.
        """
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = sqlite3.connect(
                        self._path, timeout=0, isolation_level=None, check_same_thread=False
                    )
                    self._generation = next(_generations)
                return self._connection.execute(statement, values).fetchall()
            except sqlite3.Error:  # busy, or gone: whoever asks looks for himself
                self._close()
                return None

    def close(self) -> None:
        """Close the connection; the next look opens another."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
