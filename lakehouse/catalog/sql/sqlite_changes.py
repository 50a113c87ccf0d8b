"""Whether anybody changed a SQLite database, for a hundredth of what a query costs."""

from __future__ import annotations

import itertools
import sqlite3
import threading

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
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = sqlite3.connect(
                        self._path, timeout=0, isolation_level=None, check_same_thread=False
                    )
                    self._generation = next(_generations)
                row = self._connection.execute("PRAGMA data_version").fetchone()
            except sqlite3.Error:  # busy, or gone: whoever asks looks for himself
                self._close()
                return None
            return self._generation, int(row[0])

    def close(self) -> None:
        """Close the connection; the next look opens another."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
