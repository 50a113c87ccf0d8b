"""S3, GCS and Azure through obstore.

Create-if-absent is a conditional PUT that recognises its own success.

Properties (the names pyiceberg uses): `s3.endpoint`, `s3.region`, `s3.access-key-id`,
`s3.secret-access-key`, `s3.session-token`, `s3.anonymous`, `s3.force-virtual-addressing`,
`gcs.service-account-key`, `gcs.service-account-path`, `gcs.oauth2.token`, `gcs.no-auth`,
`gcs.service.host`, `adls.connection-string`, `adls.account-name`, `adls.account-key`,
`adls.sas-token` (both also with `.<account>` at their end: of this account alone),
`adls.tenant-id`, `adls.client-id`, `adls.client-secret`, `adls.token`, `adls.anon`,
`adls.endpoint`; those that a catalog's server hands out (`lakehouse.storage.delegated`); and
`storage.timeout-ms` (of a request, 30000) and `storage.retry-timeout-ms` (how
long what failed for a transient reason is repeated, 60000). What is not given comes from the
environment as the cloud's own tools read it.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence, Sequence
from datetime import UTC, datetime
from functools import partial
from threading import Lock
from typing import Any, NoReturn, TypeVar

import obstore
import pyarrow.fs as pafs
from obstore import exceptions as obstore_errors

from lakehouse.environment import Environment
from lakehouse.errors import (
    FileAlreadyExistsError,
    InvalidLocationError,
    LakehouseError,
    NoSuchFileError,
    StorageError,
)
from lakehouse.patience import patience
from lakehouse.storage.arrow_filesystem import StorageHandler
from lakehouse.storage.bucket_clients import (
    RETRY_TIMEOUT,
    S3_SCHEMES,
    SCHEMES,
    WRITER_ID,
    Provider,
    azure_properties,
    open_store,
)
from lakehouse.storage.delegated.vended_credentials import (
    StorageCredential,
    VendedCredentials,
    check_usable,
)
from lakehouse.storage.location import parse
from lakehouse.storage.s3_client import arrow_s3, refusal_reason
from lakehouse.storage.storage_protocol import (
    WHOLE_BYTES_MAX,
    BucketStorage,
    DeleteReport,
    FileInfo,
    WriteOnlyStream,
)

T = TypeVar("T")

_FINAL = (
    obstore_errors.PermissionDeniedError,
    obstore_errors.UnauthenticatedError,
    obstore_errors.InvalidPathError,
    obstore_errors.NotSupportedError,
    obstore_errors.UnknownConfigurationKeyError,
    # a PUT into a bucket that is not there
    FileNotFoundError,
    obstore_errors.NotFoundError,
)
# What obstore says of a failure of no class of its own, where no repetition helps: a request that
# cannot be sent, a wrong region or certificate, a refusal (408 and 429 ask for patience, 409 is
# another request under way), a store that is full or lacks the method.
_FINAL_TEXT = re.compile(
    r"HTTP error: builder error|Received redirect|InvalidCertificate"
    r"|non-2xx status code: (?:4(?!08|09|25|29)\d\d|501|505|507)"
)
_PLAIN_HTTP = "HTTP error: builder error"
_CONFLICT = "409 Conflict"
_DELETE_BATCH = 1000


class ObjectStorage(BucketStorage):
    """Storage on object stores; one client per bucket, made when first used.

    Args:
        properties: see the module.
        connect: makes the client of a bucket; tests pass one that loses replies.
        environment: clock, sleep and jitter of repetitions.
    """

    concurrent_writes = 16

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        *,
        connect: Callable[[str, str, Mapping[str, str], int, Provider | None], Any] | None = None,
        environment: Environment | None = None,
    ) -> None:
        self._properties = dict(properties or {})
        self._connect = connect if connect is not None else open_store
        self._patience = patience(self._properties, RETRY_TIMEOUT, environment)
        self._vended = VendedCredentials(
            self._properties, environment if environment is not None else Environment.system()
        )
        self._stores: dict[tuple[str, str, str, bool], Any] = {}
        self._lock = Lock()

    @property
    def properties(self) -> Mapping[str, str]:
        return self._properties

    def read(self, location: str) -> bytes:
        store, key = self._locate(location)
        return self._patiently("read", location, lambda: _whole(obstore.get(store, key), location))

    def read_range(self, location: str, offset: int, length: int) -> bytes:
        store, key = self._locate(location)
        if length <= 0:
            return b""
        return self._patiently(
            "read",
            location,
            lambda: bytes(obstore.get_range(store, key, start=offset, length=length)),
        )

    # A PUT is durable.
    def write(self, location: str, data: bytes, *, durable: bool = True) -> None:  # noqa: ARG002
        store, key = self._locate(location)
        self._patiently("write", location, lambda: obstore.put(store, key, data, mode="overwrite"))

    def create(self, location: str, data: bytes) -> None:
        """Create if absent; each attempt is one request, so its answer is certain.

        An attempt that finds our own object is a success: a request before it landed, and its reply
        was lost.
        """
        store, key = self._locate(location)
        writer_id = uuid.uuid4().hex
        is_s3 = parse(location).scheme in S3_SCHEMES
        outcome = "failed"

        def attempt() -> None:
            nonlocal outcome
            try:
                obstore.put(
                    store,
                    key,
                    data,
                    mode="create",
                    attributes={WRITER_ID: writer_id},
                    use_multipart=False,
                )
            except obstore_errors.AlreadyExistsError as error:
                # S3's 409 is another request for this key that is under way and may yet fail; its
                # 412 is an object.
                writer = None if is_s3 and _CONFLICT in str(error) else self._writer_of(location)
                if writer == writer_id:
                    return
                if writer is not None:
                    raise FileAlreadyExistsError(
                        f"An object exists at {location}.", location=location
                    ) from error
                _fail("create", location, error, commit_outcome=outcome)
            except (obstore_errors.BaseError, OSError) as error:
                if not _is_final(error):
                    outcome = "unknown"
                _fail("create", location, error, commit_outcome=outcome)

        self._patience.call(attempt)

    def open_output(self, location: str) -> ObjectOutput:
        """A stream to a new file. Uploads in parts of 10 MB."""
        store, key = self._locate(location, repeats=True)
        return ObjectOutput(location, obstore.open_writer(store, key))

    def size(self, location: str) -> int:
        store, key = self._locate(location)

        def head() -> int:
            try:
                return int(obstore.head(store, key)["size"])
            except obstore_errors.PermissionDeniedError:
                obstore.get(store, key)  # its refusal says why, a HEAD's has no body
                raise

        return self._patiently("look at", location, head)

    def list(self, prefix: str) -> Iterator[FileInfo]:
        store, key = self._locate(prefix, repeats=True)
        root, spelled = key.rstrip("/"), prefix.rstrip("/")
        try:
            for batch in obstore.list(store, f"{root}/" if root else None):
                for meta in batch:
                    path = meta["path"]
                    below = path[len(root) :] if root else f"/{path}"
                    yield FileInfo(
                        spelled + below,
                        int(meta["size"]),
                        int(meta["last_modified"].timestamp() * 1000),
                    )
        except (obstore_errors.BaseError, OSError) as error:
            _fail("list", prefix, error)

    def list_folders(self, prefix: str) -> Sequence[str]:
        store, key = self._locate(prefix)
        root = key.rstrip("/")
        listing = self._patiently(
            "list",
            prefix,
            lambda: obstore.list_with_delimiter(store, f"{root}/" if root else None),
        )
        return sorted(
            folder.rstrip("/").rpartition("/")[2] for folder in listing["common_prefixes"]
        )

    def delete(self, locations: Iterable[str]) -> DeleteReport:
        """Delete in order as far as possible; failures are in the report.

        In batches of 1000, so that the order holds between batches only.
        """
        deleted: list[str] = []
        failed: dict[str, str] = {}
        batch: list[str] = []
        for location in locations:
            batch.append(location)
            if len(batch) == _DELETE_BATCH:
                self._delete_batch(batch, deleted, failed)
                batch = []
        if batch:
            self._delete_batch(batch, deleted, failed)
        return DeleteReport(tuple(deleted), (), failed)

    def filesystem(self, location: str) -> tuple[pafs.FileSystem, str]:
        """A pyarrow file system, and the location's path on it. Pyarrow's own S3 client for S3."""
        parsed = parse(location)
        if parsed.scheme not in S3_SCHEMES:
            return pafs.PyFileSystem(StorageHandler(self)), location
        properties = {**self._properties, **_config(self._vended.of(location))}
        filesystem = arrow_s3(properties, os.environ, self._patience.total_ms)
        return filesystem, f"{parsed.authority}/{parsed.path}"

    def __reduce__(self) -> tuple[object, ...]:
        return (ObjectStorage, (self._properties,))

    def __repr__(self) -> str:
        return "ObjectStorage(...)"

    def _delete_batch(
        self, batch: Sequence[str], deleted: MutableSequence[str], failed: dict[str, str]
    ) -> None:
        by_store: dict[int, tuple[Any, list[str], list[str]]] = {}
        for location in batch:
            store, key = self._locate(location)
            _, keys, spelled = by_store.setdefault(id(store), (store, [], []))
            keys.append(key)
            spelled.append(location)
        for store, keys, spelled in by_store.values():
            try:
                self._patiently("delete", spelled[0], partial(obstore.delete, store, keys))
                deleted.extend(spelled)
            except LakehouseError:
                for key, location in zip(keys, spelled, strict=True):
                    self._delete_one(store, key, location, deleted, failed)

    def _delete_one(
        self,
        store: Any,
        key: str,
        location: str,
        deleted: MutableSequence[str],
        failed: dict[str, str],
    ) -> None:
        try:
            obstore.delete(store, key)
            deleted.append(location)
        except (obstore_errors.NotFoundError, FileNotFoundError):
            deleted.append(location)
        except (obstore_errors.BaseError, OSError) as error:
            failed[location] = _reason(error)

    def _patiently(self, action: str, location: str, request: Callable[[], T]) -> T:
        """The answer to one request that can be repeated."""

        def attempt() -> T:
            try:
                return request()
            except (obstore_errors.BaseError, OSError) as error:
                _fail(action, location, error)

        return self._patience.call(attempt)

    def _writer_of(self, location: str) -> str | None:
        """The writer's id of an object, empty where it has none; None: there is no object."""
        store, key = self._locate(location)
        try:
            return obstore.get(store, key).attributes.get(WRITER_ID, "")
        except (FileNotFoundError, obstore_errors.NotFoundError):
            return None
        except (obstore_errors.BaseError, OSError) as error:
            _fail("tell who wrote", location, error)

    def _locate(self, location: str, *, repeats: bool = False) -> tuple[Any, str]:
        """Client and key; `repeats`: whether the client itself repeats what failed.

        It does so for streams, of which only it knows the parts.
        """
        parsed = parse(location)
        if parsed.scheme not in SCHEMES:
            raise InvalidLocationError(f"No object store serves {location!r}.", location=location)
        credential = self._vended.of(location)
        prefix = "" if credential is None else credential.prefix
        name = (parsed.scheme, parsed.authority, prefix, repeats)
        store = self._stores.get(name)
        if store is None:
            retry_ms = self._patience.total_ms if repeats else 0
            where = (parsed.scheme, parsed.authority, {**self._properties, **_config(credential)})
            provider = partial(self._credentials_now, location) if self._vended.renews else None
            try:
                with self._lock:
                    store = self._stores.setdefault(name, self._connect(*where, retry_ms, provider))
            except (obstore_errors.BaseError, OSError) as error:
                _fail("open the store of", location, error, commit_outcome="failed")
        return store, parsed.path

    def _credentials_now(self, location: str) -> dict[str, Any]:
        """As obstore asks for them, whenever it thinks that those it has end soon."""
        credential = self._vended.of(location)
        config = _config(credential)
        end = None if credential is None else credential.expires_ms
        ends = {"expires_at": None if end is None else datetime.fromtimestamp(end / 1000, UTC)}
        if parse(location).scheme in S3_SCHEMES:
            return ends | {
                "access_key_id": config.get("s3.access-key-id"),
                "secret_access_key": config.get("s3.secret-access-key"),
                "token": config.get("s3.session-token"),
            }
        if "gcs.oauth2.token" in config:
            return ends | {"token": config["gcs.oauth2.token"]}
        host = parse(location).authority.partition("@")[2]
        return ends | {"sas_token": azure_properties(host, config).get("adls.sas-token")}


class ObjectOutput(WriteOnlyStream):
    """OutputStream over a multipart upload."""

    def __init__(self, location: str, writer: Any) -> None:
        self._location = location
        self._writer: Any = writer
        self._written = 0

    @property
    def closed(self) -> bool:
        return self._writer is None

    def write(self, data: bytes | bytearray | memoryview, /) -> int:
        if self._writer is None:
            raise StorageError(f"The file {self._location} is closed.", location=self._location)
        try:
            self._writer.write(bytes(data))
        except (obstore_errors.BaseError, OSError) as error:
            self.abort()
            _fail("write", self._location, error)
        self._written += len(data)
        return len(data)

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        """Hand buffered bytes on; promises no durability. Parts go out when they are full."""

    def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is None:
            return
        try:
            writer.close()
        except (obstore_errors.BaseError, OSError) as error:
            _fail("write", self._location, error)

    def abort(self) -> None:
        """Abandon the file; parts already sent are left to the bucket's lifecycle rule."""
        self._writer = None


def _config(credential: StorageCredential | None) -> Mapping[str, str]:
    if credential is None:
        return {}
    check_usable(credential)
    return credential.config


def _fail(action: str, location: str, error: Exception, **context: object) -> NoReturn:
    if isinstance(error, FileNotFoundError | obstore_errors.NotFoundError) and action != "create":
        raise NoSuchFileError(f"No object at {location}.", location=location) from error
    raise StorageError(
        f"Cannot {action} {location}: {_reason(error)}",
        retryable=not _is_final(error),
        location=location,
        **context,
    ) from error


def _whole(result: obstore.GetResult, location: str) -> bytes:
    size = result.meta["size"]
    if size > WHOLE_BYTES_MAX:
        raise StorageError(
            f"Cannot read {location}: it has {size} bytes, more than {WHOLE_BYTES_MAX}.",
            location=location,
        )
    return bytes(result.bytes())


def _is_final(error: Exception) -> bool:
    """Whether the same request fails however often it is repeated."""
    return isinstance(error, _FINAL) or _FINAL_TEXT.search(str(error)) is not None


def _reason(error: Exception) -> str:
    text = str(error)
    if _PLAIN_HTTP in text:
        return (
            "the endpoint cannot be used. An http:// endpoint needs AWS_ALLOW_HTTP=true, or is "
            "given as s3.endpoint."
        )
    code = _element(text, "Code")
    if code:
        prefix = f"{type(error).__name__}: {text.partition('<')[0]}"
        message, asked_at, answered_at = (
            _element(text, name) for name in ("Message", "RequestTime", "ServerTime")
        )
        return refusal_reason(code, message, asked_at, answered_at, prefix=prefix)
    with contextlib.suppress(ValueError):
        # the first line says what happened, the rest dumps the client's configuration
        text = text[: text.index("\n")]
    return f"{type(error).__name__}: {text[:500]}"


def _element(text: str, name: str) -> str:
    """What a store's answer has in an XML element of this name; empty where it has none."""
    match = re.search(f"<{name}>([^<]*)</{name}>", text)
    return "" if match is None else match[1]
