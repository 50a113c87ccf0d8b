"""Asking a Hive Metastore, by Thrift: connections, users, and errors.

Structures and calls are those that pyiceberg ships (`hive_metastore`); they need `thrift` (`pip
install 'pylakehouse[hive]'`). Metastores of versions 3 and 4 answer `get_table_req` and
`get_table_objects_by_name_req`; those of version 2 are asked by the calls that version 4 dropped.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import (
    AlreadyExistsException,
    GetTableRequest,
    GetTablesRequest,
    InvalidObjectException,
    InvalidOperationException,
    NoSuchLockException,
    NoSuchObjectException,
    UnknownDBException,
)
from pyiceberg.types import DecimalType, FixedType, IcebergType, ListType, MapType, StructType
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.Thrift import TApplicationException, TException
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TTransportException

from lakehouse.catalog.metastores.metastore_catalog import (
    Missing,
    NotAllowed,
    Refusal,
    Taken,
    Unnameable,
)
from lakehouse.catalog.redaction import hide_in_urls
from lakehouse.environment import Environment
from lakehouse.errors import InvalidInputError, StorageError, UnsupportedFeatureError
from lakehouse.patience import patience

RETRY_TIMEOUT = "catalog.retry-timeout-ms"
"""Catalog property: how long a metastore that is away is waited for."""
_USER = "ugi"
_KERBEROS = "hive.kerberos-authentication"
_PORT = 9083
_TIMEOUT_MS = 60_000
_NO_FILE_SYSTEM = ("No FileSystem for scheme", "Failed to create external path")
_AT_ONCE = 200
"""Tables that are asked for by one call."""


class NoLock(Refusal):
    """There is no such lock, any more."""


_REFUSALS: dict[type[TException], type[Refusal]] = {
    NoSuchObjectException: Missing,
    UnknownDBException: Missing,
    AlreadyExistsException: Taken,
    InvalidObjectException: Unnameable,
    InvalidOperationException: NotAllowed,
    NoSuchLockException: NoLock,
}
T = TypeVar("T")
logging.getLogger("thrift").setLevel(logging.CRITICAL)  # it logs what it raises


class Metastore:
    """One metastore, or several that are one: the first that answers is asked.

    Safe to share between threads: each call has a connection of its own.

    Args:
        uri: `hms://host:9083`, or `thrift://`; several with commas between.
        properties: of the catalog.
        environment: clock, sleep and jitter.

    Raises:
        InvalidInputError: no host. UnsupportedFeatureError: by Kerberos.
    """

    def __init__(self, uri: str, properties: Mapping[str, str], environment: Environment) -> None:
        self.uri = hide_in_urls(uri)
        self._addresses = [_address(part) for part in uri.split(",")]
        if properties.get(_KERBEROS, "false").lower() == "true":
            raise UnsupportedFeatureError(
                f"{self.uri}: no metastore is opened by Kerberos here. Put a server of Iceberg's "
                "REST protocol before it."
            )
        self._user = properties.get(_USER)
        self.patience = patience(properties, RETRY_TIMEOUT, environment)
        self._idle: list[tuple[int, TBufferedTransport, Client]] = []

    def call(self, request: Callable[[Client], T]) -> T:
        """What one call answers.

        Raises:
            Refusal: nothing was done.
            StorageError: outcome "failed": nothing was done; "unknown": the reply was lost; None:
                the metastore answered that it failed, and nothing comes later.
        """
        transport, client = self._connection()
        is_whole = False
        try:
            answer = request(client)
            is_whole = True
        except (TTransportException, OSError, EOFError) as error:
            self.close()  # the others are likely to be dead, too
            raise StorageError(
                f"{self.uri}: {error}", retryable=True, commit_outcome="unknown"
            ) from error
        except TException as error:
            is_whole = True
            message = getattr(error, "message", None) or str(error)
            kind = _REFUSALS.get(type(error))
            if kind is None:
                raise StorageError(f"{self.uri}: {message}{_advice(message)}") from None
            # what Thrift generates for it cannot pass a context manager: it is immutable
            raise kind(message) from None
        finally:
            if is_whole:
                self._idle.append((os.getpid(), transport, client))
            else:
                transport.close()
        return answer

    def ask(self, question: Callable[[Client], T]) -> T:
        """What a call answers that may be repeated, while the metastore is away."""
        return self.patience.call(lambda: self.call(question))

    def table(self, database: str, name: str) -> Any | None:
        """A table or view of Hive's; None where there is none."""
        try:
            return self.ask(lambda client: _table(client, database, name))
        except Missing:
            return None

    def tables(self, database: str) -> list[Any]:
        """All tables and views of Hive's; none where there is no database."""
        try:
            names = self.ask(lambda client: client.get_all_tables(database))
        except Missing:
            return []
        parts = [names[start : start + _AT_ONCE] for start in range(0, len(names), _AT_ONCE)]
        return [
            table
            for part in parts
            for table in self.ask(partial(_tables, database=database, names=part))
        ]

    def close(self) -> None:
        """Close what is open; new calls open new connections."""
        idle, self._idle = self._idle, []
        for _, transport, _ in idle:
            transport.close()

    def _connection(self) -> tuple[TBufferedTransport, Client]:
        while self._idle:
            try:
                process, transport, client = self._idle.pop()
            except IndexError:  # another thread took it
                break
            if process == os.getpid():
                return transport, client
        problem: Exception | None = None
        for host, port in self._addresses:
            socket = TSocket(host, port)
            socket.setTimeout(_TIMEOUT_MS)
            transport = TBufferedTransport(socket)
            client = Client(TBinaryProtocolAccelerated(transport))
            try:
                transport.open()
                if self._user:
                    user, *groups = self._user.split(":")
                    client.set_ugi(user, groups)
            except (TException, OSError, EOFError) as error:
                problem = error
                transport.close()
                continue
            return transport, client
        raise StorageError(
            f"{self.uri} is not reached: {problem}", retryable=True, commit_outcome="failed"
        ) from problem


def _advice(message: str) -> str:
    if not any(sign in message for sign in _NO_FILE_SYSTEM):
        return ""
    return (
        ". A metastore makes the folders of databases and tables itself: its own Hadoop needs a "
        "connector and keys for the storage of this location (for s3://: hadoop-aws, and "
        "fs.s3.impl=org.apache.hadoop.fs.s3a.S3AFileSystem)."
    )


def _address(uri: str) -> tuple[str, int]:
    split = urlsplit(uri.strip())
    if not split.hostname:
        raise InvalidInputError(
            f"{hide_in_urls(uri)} names no metastore: write hms://host:{_PORT}."
        )
    return split.hostname, split.port or _PORT


def _table(client: Client, database: str, name: str) -> Any:
    try:
        return client.get_table_req(GetTableRequest(dbName=database, tblName=name)).table
    except TApplicationException as error:
        if error.type != TApplicationException.UNKNOWN_METHOD:
            raise
        return client.get_table(database, name)


def _tables(client: Client, *, database: str, names: list[str]) -> list[Any]:
    try:
        request = GetTablesRequest(dbName=database, tblNames=names)
        answered: list[Any] = client.get_table_objects_by_name_req(request).tables
    except TApplicationException as error:
        if error.type != TApplicationException.UNKNOWN_METHOD:
            raise
        answered = client.get_table_objects_by_name(database, names)
    return answered


_NAMES = {
    **{name: name for name in ("boolean", "int", "float", "double", "date", "string", "binary")},
    "long": "bigint",
    "time": "string",
    "uuid": "string",
    "unknown": "void",
    "timestamp": "timestamp",
    "timestamp_ns": "timestamp",
}
_INSTANTS = ("timestamptz", "timestamptz_ns")


def hive_type(iceberg: IcebergType, instant: str = "timestamp with local time zone") -> str:
    """The type as Hive names it; what it does not know is bytes.

    `instant`: the name of a timestamp with time zone.

    >>> from pyiceberg.types import LongType
    >>> hive_type(LongType())
    'bigint'
    """
    if isinstance(iceberg, StructType):
        inner = (f"{field.name}:{hive_type(field.field_type, instant)}" for field in iceberg.fields)
        return f"struct<{','.join(inner)}>"
    if isinstance(iceberg, ListType):
        return f"array<{hive_type(iceberg.element_type, instant)}>"
    if isinstance(iceberg, MapType):
        key, value = (hive_type(one, instant) for one in (iceberg.key_type, iceberg.value_type))
        return f"map<{key},{value}>"
    if isinstance(iceberg, DecimalType):
        return f"decimal({iceberg.precision},{iceberg.scale})"
    if isinstance(iceberg, FixedType):
        return "binary"
    name = str(iceberg)
    return instant if name in _INSTANTS else _NAMES.get(name, "binary")
