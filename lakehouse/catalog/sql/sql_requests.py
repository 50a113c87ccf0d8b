"""What became of requests, in the transaction that carried them out."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence

from sqlalchemy import Connection, inspect
from sqlalchemy.exc import IntegrityError

from lakehouse.catalog.catalog_protocol import AnsweredRequest, Request, RequestLog
from lakehouse.catalog.sql.sql_database import Database

_TABLE = (
    "CREATE TABLE IF NOT EXISTS lakehouse_requests (catalog_name VARCHAR(255) NOT NULL, "
    "request_key VARCHAR(36) NOT NULL, fingerprint VARCHAR(64) NOT NULL, status INTEGER, "
    "answer TEXT, at_ms BIGINT NOT NULL, PRIMARY KEY (catalog_name, request_key))"
)


class SqlRequests(RequestLog):
    """The requests of one catalog in a database.

    Args:
        database: holds them.
        catalog: the `catalog_name`.
    """

    def __init__(self, database: Database, catalog: str) -> None:
        self._database, self._catalog = database, catalog
        self._current: Sequence[Request] = ()
        self._is_ready = False

    def during(self, requests: Sequence[Request]) -> SqlRequests:
        """The same, while these requests are carried out."""
        self.prepare()
        same = copy.copy(self)
        same._current = requests  # noqa: SLF001
        return same

    def note_current(self, connection: Connection, answer: str | None = None) -> None:
        """Keep what is being carried out with everything else that this transaction does.

        Called in each transaction that changes something, before it is committed.

        Args:
            connection: of the transaction.
            answer: of each request; None: what it says itself.

        Raises:
            RequestRepeatedError: one was carried out before, and will not be again.
        """
        for request in self._current:
            self.note(connection, request, answer=answer or request.answer)

    def prepare(self) -> None:
        """Create the table where it is absent."""
        if self._is_ready:
            return
        with self._database.read() as connection:
            present = "lakehouse_requests" in inspect(connection).get_table_names()
        if not present:
            with self._database.write() as connection:
                self._database.alone(connection)
                connection.exec_driver_sql(_TABLE)
        self._is_ready = True

    def find(self, key: str) -> AnsweredRequest | None:
        self.prepare()
        with self._database.read() as connection:
            rows = self._database.rows(
                connection,
                "SELECT fingerprint, status, answer FROM lakehouse_requests "
                "WHERE catalog_name = :catalog AND request_key = :key",
                catalog=self._catalog,
                key=key,
            )
        return AnsweredRequest(*rows[0]) if rows else None

    def begun(self, keys: Sequence[str]) -> Collection[str]:
        self.prepare()
        names = {f"key{n}": key for n, key in enumerate(keys)}
        with self._database.read() as connection:
            rows = self._database.rows(
                connection,
                "SELECT request_key FROM lakehouse_requests WHERE catalog_name = :catalog "
                f"AND request_key IN ({', '.join(f':{name}' for name in names)})",
                catalog=self._catalog,
                **names,
            )
        return {row[0] for row in rows}

    def refuse(self, request: Request, status: int, answer: str) -> None:
        self.prepare()
        with self._database.write() as connection:
            self.note(connection, request, status, answer)

    def forget(self, before_ms: int) -> int:
        self.prepare()
        with self._database.write() as connection:
            return self._database.run(
                connection,
                "DELETE FROM lakehouse_requests WHERE catalog_name = :catalog "
                "AND at_ms < :before_ms",
                catalog=self._catalog,
                before_ms=before_ms,
            )

    def note(
        self,
        connection: Connection,
        request: Request,
        status: int | None = None,
        answer: str | None = None,
    ) -> None:
        """Keep a request with everything else that this transaction does.

        Raises RequestRepeatedError: it was carried out before, and will not be again.
        """
        try:
            self._database.run(
                connection,
                "INSERT INTO lakehouse_requests (catalog_name, request_key, fingerprint, status, "
                "answer, at_ms) VALUES (:catalog, :key, :fingerprint, :status, :answer, :at_ms)",
                catalog=self._catalog,
                key=request.key,
                fingerprint=request.fingerprint,
                status=status,
                answer=answer,
                at_ms=request.at_ms,
            )
        except IntegrityError as error:
            raise request.repeated() from error
