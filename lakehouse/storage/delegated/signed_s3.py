"""S3 without keys: each request is signed by the catalog's server.

Through botocore, whose requests can be signed by others (`pip install 'pylakehouse[signing]'`).
"""

from __future__ import annotations

import importlib
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence, Sequence
from functools import partial
from typing import Any, NoReturn, TypeVar

import pyarrow.fs as pafs

from lakehouse.environment import Environment
from lakehouse.errors import (
    FileAlreadyExistsError,
    LakehouseError,
    NoSuchFileError,
    StorageError,
    UnsupportedFeatureError,
)
from lakehouse.patience import patience
from lakehouse.storage.arrow_filesystem import StorageHandler
from lakehouse.storage.bucket_clients import RETRY_TIMEOUT, WRITER_ID
from lakehouse.storage.delegated.remote_signer import RemoteSigner
from lakehouse.storage.location import parse
from lakehouse.storage.s3_client import refusal_reason, s3_endpoint, s3_region
from lakehouse.storage.storage_protocol import (
    BucketStorage,
    DeleteReport,
    FileInfo,
    WriteOnlyStream,
)

T = TypeVar("T")
_PART_BYTES = 10 * 1024 * 1024
_DELETE_BATCH = 1000
_ABSENT, _THERE, _BUSY = (404,), (412,), (408, 409, 425, 429, 500, 502, 503, 504)


class SignedS3Storage(BucketStorage):
    """Storage on S3 for who has no keys.

    Args:
        properties: see `lakehouse.storage.delegated.remote_signer`; `s3.endpoint`, `s3.region`,
            `s3.path-style-access`; `storage.timeout-ms`, `storage.retry-timeout-ms`.
        environment: clock, sleep and jitter of repetitions.

    Raises UnsupportedFeatureError: botocore is not installed.
    """

    def __init__(
        self, properties: Mapping[str, str], environment: Environment | None = None
    ) -> None:
        self._properties = dict(properties)
        self._patience = patience(self._properties, RETRY_TIMEOUT, environment)
        self._client = _client(self._properties)
        self._errors = importlib.import_module("botocore.exceptions")

    @property
    def properties(self) -> Mapping[str, str]:
        return self._properties

    def read(self, location: str) -> bytes:
        arguments = _at(location)
        return self._ask("read", location, lambda: _content(self._client.get_object(**arguments)))

    def read_range(self, location: str, offset: int, length: int) -> bytes:
        if length <= 0:
            return b""
        arguments = {**_at(location), "Range": f"bytes={offset}-{offset + length - 1}"}
        return self._ask("read", location, lambda: _content(self._client.get_object(**arguments)))

    # A PUT is durable.
    def write(self, location: str, data: bytes, *, durable: bool = True) -> None:  # noqa: ARG002
        arguments = {**_at(location), "Body": bytes(data)}
        self._ask("write", location, lambda: self._client.put_object(**arguments))

    def create(self, location: str, data: bytes) -> None:
        """Create if absent; an attempt that finds our own object is a success."""
        writer = uuid.uuid4().hex
        arguments = {
            **_at(location),
            "Body": bytes(data),
            "IfNoneMatch": "*",
            "Metadata": {WRITER_ID: writer},
        }
        outcome = "failed"

        def attempt() -> None:
            nonlocal outcome
            try:
                self._client.put_object(**arguments)
            except self._errors.ClientError as error:
                if _status(error) in _THERE and self._writer_of(location) == writer:
                    return
                if _status(error) in _THERE:
                    raise FileAlreadyExistsError(
                        f"An object exists at {location}.", location=location
                    ) from error
                if _status(error) >= 500:
                    outcome = "unknown"
                _fail("create", location, error, commit_outcome=outcome)
            except self._errors.BotoCoreError as error:
                outcome = "unknown"
                _fail("create", location, error, commit_outcome=outcome)

        self._patience.call(attempt)

    def open_output(self, location: str) -> SignedOutput:
        """A stream to a new file. Uploads in parts of 10 MiB."""
        return SignedOutput(self, location)

    def size(self, location: str) -> int:
        return self._ask(
            "look at",
            location,
            lambda: int(self._client.head_object(**_at(location))["ContentLength"]),
        )

    def list(self, prefix: str) -> Iterator[FileInfo]:
        spelled = prefix.rstrip("/")
        root = parse(prefix).path.rstrip("/")
        for page in self._pages(prefix, {}):
            for item in page.get("Contents", ()):
                yield FileInfo(
                    spelled + item["Key"][len(root) :],
                    int(item["Size"]),
                    int(item["LastModified"].timestamp() * 1000),
                )

    def list_folders(self, prefix: str) -> Sequence[str]:
        return sorted(
            item["Prefix"].rstrip("/").rpartition("/")[2]
            for page in self._pages(prefix, {"Delimiter": "/"})
            for item in page.get("CommonPrefixes", ())
        )

    def delete(self, locations: Iterable[str]) -> DeleteReport:
        deleted: MutableSequence[str] = []
        failed: dict[str, str] = {}
        waiting = [*locations]
        for begin in range(0, len(waiting), _DELETE_BATCH):
            self._delete(waiting[begin : begin + _DELETE_BATCH], deleted, failed)
        return DeleteReport(tuple(deleted), (), failed)

    def filesystem(self, location: str) -> tuple[pafs.FileSystem, str]:
        return pafs.PyFileSystem(StorageHandler(self)), location

    def __reduce__(self) -> tuple[object, ...]:
        return (SignedS3Storage, (self._properties,))

    def __repr__(self) -> str:
        return "SignedS3Storage(...)"

    def _delete(
        self, batch: Sequence[str], deleted: MutableSequence[str], failed: dict[str, str]
    ) -> None:
        by_bucket: dict[str, dict[str, str]] = {}
        for location in batch:
            parsed = parse(location)
            by_bucket.setdefault(parsed.authority, {})[parsed.path] = location
        for bucket, spelled in by_bucket.items():
            arguments = {"Bucket": bucket, "Delete": {"Objects": [{"Key": key} for key in spelled]}}
            try:
                done = self._ask(
                    "delete",
                    next(iter(spelled.values())),
                    partial(self._client.delete_objects, **arguments),
                )
            except LakehouseError as error:
                failed |= dict.fromkeys(spelled.values(), error.message)
                continue
            wrong = {error["Key"]: error.get("Message", "") for error in done.get("Errors", ())}
            failed |= {spelled[key]: reason for key, reason in wrong.items()}
            deleted.extend(location for key, location in spelled.items() if key not in wrong)

    def _pages(self, prefix: str, more: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
        parsed = parse(prefix)
        root = parsed.path.rstrip("/")
        arguments = {"Bucket": parsed.authority, "Prefix": f"{root}/" if root else "", **more}
        while True:
            page = self._ask("list", prefix, lambda: self._client.list_objects_v2(**arguments))
            yield page
            if not page.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = page["NextContinuationToken"]

    def _writer_of(self, location: str) -> str | None:
        try:
            head = self._ask(
                "tell who wrote", location, lambda: self._client.head_object(**_at(location))
            )
        except NoSuchFileError:
            return None
        return str(head["Metadata"].get(WRITER_ID, ""))

    def _ask(self, action: str, location: str, request: Callable[[], T]) -> T:
        """The answer to one request that can be repeated."""

        def attempt() -> T:
            try:
                return request()
            except (self._errors.ClientError, self._errors.BotoCoreError) as error:
                _fail(action, location, error)

        return self._patience.call(attempt)


class SignedOutput(WriteOnlyStream):
    """OutputStream over a multipart upload; of little data, over one request."""

    def __init__(self, storage: SignedS3Storage, location: str) -> None:
        self._storage, self._location = storage, location
        self._buffer = bytearray()
        self._written, self._closed = 0, False
        self._upload: str | None = None
        self._parts: list[dict[str, Any]] = []

    @property
    def closed(self) -> bool:
        return self._closed

    def write(self, data: bytes | bytearray | memoryview, /) -> int:
        if self._closed:
            raise StorageError(f"The file {self._location} is closed.", location=self._location)
        self._buffer += data
        self._written += len(data)
        while len(self._buffer) > _PART_BYTES:
            self._send_part(bytes(self._buffer[:_PART_BYTES]))
            del self._buffer[:_PART_BYTES]
        return len(data)

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        """Hand buffered bytes on; promises no durability. Parts go out when they are full."""

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._upload is None:
            self._storage.write(self._location, bytes(self._buffer))
            return
        self._send_part(bytes(self._buffer))
        self._ask(
            "complete_multipart_upload",
            UploadId=self._upload,
            MultipartUpload={"Parts": self._parts},
        )

    def abort(self) -> None:
        """Abandon the file; parts already sent are left to the bucket's lifecycle rule."""
        self._closed = True

    def _send_part(self, data: bytes) -> None:
        try:
            if self._upload is None:
                self._upload = str(self._ask("create_multipart_upload")["UploadId"])
            number = len(self._parts) + 1
            part = self._ask("upload_part", UploadId=self._upload, PartNumber=number, Body=data)
        except LakehouseError:
            self.abort()
            raise
        self._parts.append({"ETag": part["ETag"], "PartNumber": number})

    def _ask(self, operation: str, **more: Any) -> Any:
        request = getattr(self._storage._client, operation)  # noqa: SLF001 - its own stream
        arguments = {**_at(self._location), **more}
        return self._storage._ask("write", self._location, lambda: request(**arguments))  # noqa: SLF001


_making = threading.Lock()


def _client(properties: Mapping[str, str]) -> Any:
    try:
        session = importlib.import_module("botocore.session").get_session()
        config = importlib.import_module("botocore.config").Config
        unsigned = importlib.import_module("botocore").UNSIGNED
    except ModuleNotFoundError as error:
        raise UnsupportedFeatureError(
            "The catalog's server signs requests to S3: pip install 'pylakehouse[signing]'."
        ) from error
    endpoint = s3_endpoint(properties, os.environ)
    path_style = properties.get("s3.path-style-access", "true" if endpoint else "false")
    seconds = int(properties.get("storage.timeout-ms", "30000")) / 1000
    with _making:  # its loader is not safe between threads
        client = session.create_client(
            "s3",
            region_name=s3_region(properties, os.environ) or "us-east-1",
            endpoint_url=endpoint,
            config=config(
                signature_version=unsigned,
                connect_timeout=seconds,
                read_timeout=seconds,
                max_pool_connections=32,
                retries={"total_max_attempts": 1},
                s3={"addressing_style": "path" if path_style.lower() == "true" else "auto"},
                # a checksum behind the body would be a part of the signature
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )
    client.meta.events.register("before-sign.s3", RemoteSigner(properties))
    return client


def _at(location: str) -> dict[str, Any]:
    parsed = parse(location)
    return {"Bucket": parsed.authority, "Key": parsed.path}


def _content(answer: Mapping[str, Any]) -> bytes:
    return bytes(answer["Body"].read())


def _status(error: Any) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _fail(action: str, location: str, error: Any, **context: object) -> NoReturn:
    response = getattr(error, "response", None)
    status = 0 if response is None else _status(error)
    if status in _ABSENT and action != "create":
        raise NoSuchFileError(f"No object at {location}.", location=location) from error
    details = {} if response is None else response.get("Error", {})
    reason = refusal_reason(
        details.get("Code", type(error).__name__),
        details.get("Message", ""),
        details.get("RequestTime", ""),
        details.get("ServerTime", ""),
    )
    raise StorageError(
        f"Cannot {action} {location}: {reason}",
        retryable=response is None or status in _BUSY,
        location=location,
        **context,
    ) from error
