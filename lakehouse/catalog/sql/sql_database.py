"""The SQL catalog's database: connections, transactions, and failures of unknown outcome."""

from __future__ import annotations

import hashlib
import itertools
import logging
import re
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import Enum
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    TextClause,
    Transaction,
    create_engine,
    event,
    inspect,
    make_url,
    text,
)
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    IntegrityError,
    OperationalError,
    SQLAlchemyError,
)
from sqlalchemy.exc import TimeoutError as NoConnectionLeftError

from lakehouse.catalog.machine_turns import WAIT_SECONDS_MAX, machine_turn, thread_turn
from lakehouse.errors import InvalidInputError, StorageError
from lakehouse.patience import Patience

log = logging.getLogger(__name__)

_TABLES = (
    "CREATE TABLE IF NOT EXISTS iceberg_tables (catalog_name VARCHAR(255) NOT NULL, "
    "table_namespace VARCHAR(255) NOT NULL, table_name VARCHAR(255) NOT NULL, "
    "metadata_location VARCHAR(1000), previous_metadata_location VARCHAR(1000), "
    "iceberg_type VARCHAR(5), PRIMARY KEY (catalog_name, table_namespace, table_name))",
    "CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (catalog_name VARCHAR(255) NOT "
    "NULL, namespace VARCHAR(255) NOT NULL, property_key VARCHAR(255) NOT NULL, "
    "property_value VARCHAR(1000), PRIMARY KEY (catalog_name, namespace, property_key))",
)
NAME_MAX = 255
"""Characters of names in the schema above; PostgreSQL refuses more, SQLite does not count."""
VALUE_MAX = 1000
"""Characters of locations and of property values."""
_LOST_RACE = frozenset({"40001", "40P01", "55P03"})
"""SQLSTATE of transactions given up because of others: serialization, deadlock, lock timeout."""
_TRANSIENT = frozenset({"53300", "57P01", "57P02", "57P03"})
"""SQLSTATE of a server that has too many connections, stops or starts."""
_REFUSED = re.compile(
    # after all blanks: PostgreSQL writes two
    r"FATAL:\s*(?!\s|the database system|(sorry, )?too many|remaining connection|terminating )"
    r"|no password supplied|certificate"
)
"""What says that a connection is refused whenever it is tried; it has no SQLSTATE."""
_BUSY_MS = 60_000
REMEMBERED_MAX = 4096
"""Rows: whoever asks for names that are none leaves no more."""
_ATTEMPTS = 5


class Attempted(Enum):
    """What became of a transaction that was tried."""

    COMMITTED = "committed"
    GAVE_WAY = "rolled back by the database, because of others"
    LOST_REPLY = "perhaps committed: the reply to COMMIT was lost"


class Database:
    """A SQLite or PostgreSQL database.

    Args:
        uri: SQLAlchemy URL; `postgresql://` means psycopg.
        patience: how long a server that is away is waited for.
    """

    def __init__(self, uri: str, patience: Patience | None = None) -> None:
        url = _parsed(uri)
        if url.drivername in {"postgresql", "postgres"}:
            url = url.set(drivername="postgresql+psycopg")
        self._is_sqlite = url.get_backend_name() == "sqlite"
        if not self._is_sqlite and url.get_backend_name() != "postgresql":
            raise InvalidInputError(
                f"No SQL catalog on {url.get_backend_name()}: use sqlite:///<file> or "
                "postgresql+psycopg://..."
            )
        self._patience = Patience(0) if self._is_sqlite else patience or Patience()
        self._path = url.database
        if self._is_sqlite:
            if not self._path or self._path == ":memory:":
                raise InvalidInputError(
                    "A SQLite catalog needs a file: write sqlite:////absolute/path/catalog.db."
                )
            Path(self._path).parent.mkdir(parents=True, exist_ok=True)
        self.display_uri = url.set(password=None, query={}).render_as_string(hide_password=True)
        self._engine = _engine(url, is_sqlite=self._is_sqlite)
        self._changes = SqliteChanges(str(self._path)) if self._is_sqlite else None
        self._typed: bool | None = None
        self._remembered: tuple[Hashable, dict[Hashable, Any]] = (None, {})
        weakref.finalize(self, self._engine.dispose)
        if self._changes is not None:
            weakref.finalize(self, self._changes.close)

    @property
    def row_lock(self) -> str:
        """The clause that makes a SELECT wait for transactions that change the row."""
        return "" if self._is_sqlite else " FOR UPDATE"

    def create_tables(self) -> None:
        """Create the catalog's tables where they are absent; concurrent creators are welcome."""
        with self.read() as connection:
            present = set(inspect(connection).get_table_names())
        if {"iceberg_tables", "iceberg_namespace_properties"} <= present:
            return
        for attempt in range(_ATTEMPTS):
            try:
                with self.write() as connection:
                    for statement in _TABLES:
                        connection.exec_driver_sql(statement)
            except (IntegrityError, StorageError):
                if attempt + 1 == _ATTEMPTS:
                    raise
                time.sleep(0.05 * 2**attempt)
            else:
                return

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection outside a transaction. Raises StorageError."""
        try:
            with self._connected() as connection:
                yield connection.execution_options(
                    isolation_level="AUTOCOMMIT", lakehouse_read=True
                )
        except SQLAlchemyError as error:
            raise self._failed(error) from error

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction, committed at the end of the block.

        Raises StorageError; IntegrityError passes.
        """
        try:
            with self._writing(), self._connected() as connection, connection.begin():
                yield connection
        except IntegrityError:
            raise
        except SQLAlchemyError as error:
            raise self._failed(error) from error

    def attempt(self, change: Callable[[Connection], None]) -> Attempted:
        """Run one change in a transaction. Raises StorageError: certainly not committed."""
        return self._patience.call(partial(self._attempt_once, change))

    def _attempt_once(self, change: Callable[[Connection], None]) -> Attempted:
        with self._writing(), self._connect() as connection:
            transaction = None
            try:
                transaction = connection.begin()
                change(connection)
            except SQLAlchemyError as error:
                # COMMIT was never sent, so the server rolls back.
                if transaction is not None:
                    _roll_back(connection, transaction)
                if _sqlstate(error) in _LOST_RACE:
                    return Attempted.GAVE_WAY
                raise self._failed(error) from error
            try:
                transaction.commit()
            except SQLAlchemyError:
                connection.invalidate()
                return Attempted.LOST_REPLY
            return Attempted.COMMITTED

    def run(self, connection: Connection, statement: str, **values: Any) -> int:
        """Execute with bound values; returns the number of rows touched."""
        return connection.execute(_parsed_sql(statement), values).rowcount

    def rows(self, connection: Connection, statement: str, **values: Any) -> Sequence[Any]:
        """Query with bound values."""
        return connection.execute(_parsed_sql(statement), values).fetchall()

    def has_type_column(self, connection: Connection | None = None) -> bool:
        """Whether `iceberg_tables` has the later schema's `iceberg_type`.

        Args:
            connection: to look there; None: one of its own.
        """
        if self._typed is None:
            if connection is None:
                with self.read() as other:
                    return self.has_type_column(other)
            self._typed = "iceberg_type" in {
                column["name"] for column in inspect(connection).get_columns("iceberg_tables")
            }
        return self._typed

    def alone(self, connection: Connection) -> None:
        """Exclude every other transaction that called this, until the end of this one.

        A SQLite transaction excludes others anyway.
        """
        if not self._is_sqlite:
            connection.execute(
                text("SELECT pg_advisory_xact_lock(:number)"),
                {"number": _number("lakehouse: names")},
            )

    def turn(self, key: str) -> AbstractContextManager[None]:
        """Wait for a turn. A file lock beside SQLite, an advisory lock in PostgreSQL."""
        return machine_turn(f"{self._path}:{key}") if self._is_sqlite else self._advisory_turn(key)

    def change_mark(self) -> Hashable | None:
        """What changes whenever anybody commits; None where only a query could tell."""
        return None if self._changes is None else self._changes.mark()

    def first_row(self, statement: str, **values: str) -> Any | None:
        """The first row that a query finds, None without one; from memory while nobody commits.

        Args:
            statement: the query.
            values: of its parameters.
        """
        mark = self.change_mark()  # of before: who commits meanwhile changes it
        of_mark, remembered = self._remembered
        key = (statement, *values.values())
        if mark is not None and mark == of_mark and key in remembered:
            return remembered[key]
        rows: Sequence[Any] | None = None
        if self._changes is not None:
            rows = self._changes.rows(statement, values)
        if rows is None:
            with self.read() as connection:
                rows = self.rows(connection, statement, **values)
        row = rows[0] if rows else None
        if mark is not None and mark == of_mark and len(remembered) < REMEMBERED_MAX:
            remembered[key] = row
        elif mark is not None:
            self._remembered = (mark, {key: row})
        return row

    def close(self) -> None:
        """Close pooled connections."""
        self._engine.dispose()
        if self._changes is not None:
            self._changes.close()

    def _connected(self) -> Connection:
        """A connection; a server that is away is waited for. Raises StorageError."""
        return self._patience.call(self._connect)

    def _connect(self) -> Connection:
        try:
            return self._engine.connect()
        except SQLAlchemyError as error:
            raise self._failed(error) from error

    def _writing(self) -> AbstractContextManager[None]:
        """SQLite takes one writer: threads of this process queue here.

        Those that SQLite itself keeps waiting sleep up to 100 ms and look again, whoever came
        after them meanwhile.
        """
        return (
            thread_turn(f"{id(self)}: write", _BUSY_MS / 1000) if self._is_sqlite else nullcontext()
        )

    @contextmanager
    def _advisory_turn(self, key: str) -> Iterator[None]:
        # Threads of this process queue here, so that waiting costs one connection and not the whole
        # pool.
        with thread_turn(f"{id(self)}: {key}"):
            connection = self._locked(_number(key))
            try:
                yield
            finally:
                if connection is not None:
                    _give_back(connection)

    def _locked(self, number: int) -> Connection | None:
        """A connection that holds an advisory lock; None when the lock cannot be had."""
        connection: Connection | None = None
        try:
            connection = self._engine.connect()
            connection.execute(text(f"SET LOCAL lock_timeout = '{int(WAIT_SECONDS_MAX)}s'"))
            connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": number})
        except SQLAlchemyError as error:
            log.debug("No turn-taking: %s", type(error).__name__)
            if connection is not None:
                _give_back(connection)
            return None
        return connection

    def _failed(self, error: SQLAlchemyError) -> StorageError:
        cause = error.orig if isinstance(error, DBAPIError) else None
        reason = (
            str(cause).strip().partition("\n")[0]
            if cause is not None
            else f"{type(error).__name__}: {error}"
        )
        return StorageError(
            f"The catalog database {self.display_uri} failed: {reason}",
            retryable=_is_transient(error),
            uri=self.display_uri,
        )


@lru_cache(128)
def _parsed_sql(statement: str) -> TextClause:
    return text(statement)


def _parsed(uri: str) -> URL:
    try:
        url = make_url(uri)
    except (ArgumentError, ValueError):
        url = None
    if url is None or "@" in (url.host or ""):
        # Not even the reason is shown: it quotes a part of the URL, which may be a part of the
        # password.
        kind = uri.partition(":")[0]
        raise InvalidInputError(
            f"The URL of the {kind} catalog cannot be read. Write "
            f"{kind}://user:password@host:port/database, and percent-encode what is special in the "
            "password."
        )
    return url


def _engine(url: URL, *, is_sqlite: bool) -> Engine:
    # READ COMMITTED whatever the server's default is: the conditional UPDATE waits for a rival and
    # then looks again.
    options: dict[str, Any] = (
        {} if is_sqlite else {"isolation_level": "READ COMMITTED", "pool_pre_ping": True}
    )
    try:
        engine = create_engine(url, hide_parameters=True, max_overflow=50, **options)
    except (ArgumentError, ImportError) as error:
        raise InvalidInputError(
            f"No driver for {url.drivername}: use sqlite:///<file> or postgresql+psycopg://..., "
            "and install the extra 'postgres'."
        ) from error
    if is_sqlite:
        _prepare_sqlite(engine)
    return engine


def _is_transient(error: SQLAlchemyError) -> bool:
    """Whether the same can succeed later: a server that is away, full, or gave way to others."""
    if not isinstance(error, DBAPIError):
        return isinstance(error, NoConnectionLeftError)
    if error.connection_invalidated:
        return True
    state = _sqlstate(error)
    if state is not None:
        return state in _TRANSIENT | _LOST_RACE or state.startswith("08")
    # a connection that failed, or SQLite
    return isinstance(error, OperationalError) and _REFUSED.search(str(error.orig)) is None


def _sqlstate(error: SQLAlchemyError) -> str | None:
    return getattr(error.orig, "sqlstate", None) if isinstance(error, DBAPIError) else None


def _roll_back(connection: Connection, transaction: Transaction) -> None:
    """Roll back a transaction; a server that cannot be reached does so itself."""
    try:
        if not connection.invalidated:
            transaction.rollback()
    except SQLAlchemyError as error:
        log.debug("A failed transaction could not be rolled back: %s", type(error).__name__)
        connection.invalidate()


def _number(key: str) -> int:
    """The key of an advisory lock."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big", signed=True)


def _give_back(connection: Connection) -> None:
    """End the transaction and return the connection to the pool.

    A failure here does not touch what was done under the lock.
    """
    try:
        connection.rollback()
        connection.close()
    except SQLAlchemyError as error:
        log.debug("A connection that held a turn was lost: %s", type(error).__name__)
        connection.invalidate()


def _prepare_sqlite(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        _enter_wal(cursor)
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.close()

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        if not connection.get_execution_options().get("lakehouse_read"):
            connection.exec_driver_sql("BEGIN IMMEDIATE")


def _enter_wal(cursor: Any) -> None:
    """Write-ahead log from the first connection on.

    Changing the mode does not wait for others by itself, so we do.
    """
    until = time.monotonic() + _BUSY_MS / 1000
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)
        else:
            return


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
        """What changes whenever any connection commits; None: unknown, the database is busy."""
        rows = self.rows("PRAGMA data_version", {})
        return None if rows is None else (self._generation, int(rows[0][0]))

    def rows(self, statement: str, values: Mapping[str, str]) -> list[Any] | None:
        """What a query finds; None: unknown, the database is busy.

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
