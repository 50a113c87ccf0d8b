"""How clients reach a table's files: by credentials for them, or by having requests signed.

What credentials for one table allow is a session policy (IAM: policy grammar).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import botocore.session
import orjson
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from lakehouse.environment import Environment
from lakehouse.errors import InvalidInputError, StorageError, UnsupportedFeatureError
from lakehouse.kept_by_bytes import KeptByBytes, bytes_of
from lakehouse.server.access.privileges import Caller, Privilege
from lakehouse.server.delegation.signable_requests import Endpoint, SignRequest, check_signable
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.storage.location import lies_within, parse
from lakehouse.storage.s3_client import s3_client_settings, s3_endpoint, s3_region

_PORTS = {"http": 80, "https": 443}
_UNSIGNED = "UNSIGNED-PAYLOAD"
_SIGNED = frozenset({"content-md5", "content-type"})


@dataclass(frozen=True, slots=True)
class SessionKeys:
    """Temporary credentials.

    Attributes:
        config: as storage properties; secret.
        expires_ms: when they end, milliseconds since the epoch.
    """

    config: Mapping[str, str]
    expires_ms: int

    def __repr__(self) -> str:
        return f"SessionKeys(***, {self.expires_ms})"


class StorageKeys:
    """What the catalog's properties, or the environment, give the server for S3.

    Args:
        properties: of the catalog, with the store's address as clients reach it.

    Attributes:
        endpoint: of the store.

    Raises InvalidInputError: there is no region.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._session = botocore.session.get_session()
        if "s3.access-key-id" in properties:
            self._session.set_credentials(
                properties["s3.access-key-id"],
                properties["s3.secret-access-key"],
                properties.get("s3.session-token"),
            )
        region = s3_region(properties, os.environ)
        if not region:
            raise InvalidInputError("Access to S3 is handed out for a region: set s3.region.")
        url = s3_endpoint(properties, os.environ) or f"https://s3.{region}.amazonaws.com"
        parts = urlsplit(url if "://" in url else f"https://{url}")
        port = "" if parts.port in (None, _PORTS.get(parts.scheme)) else f":{parts.port}"
        self.endpoint = Endpoint(parts.scheme, f"{parts.hostname}{port}", region)
        self._properties = properties
        self._sts: Any = None

    def client_settings(self) -> dict[str, str]:
        """What clients need beside credentials; no secrets."""
        return s3_client_settings(self._properties, os.environ)

    def session(
        self, role: str, policy: str, seconds: int, name: str, endpoint: str | None
    ) -> SessionKeys:
        """Credentials of a role, confined by a policy (STS: AssumeRole).

        Args:
            role: its resource name.
            policy: of the session.
            seconds: of its life.
            name: of the session, as Amazon's audit log has it.
            endpoint: of STS; None: Amazon's.

        Raises StorageError.
        """
        if self._sts is None:
            self._sts = self._session.create_client(
                "sts",
                region_name=self.endpoint.region,
                endpoint_url=endpoint,
                config=Config(connect_timeout=10, read_timeout=20, retries={"max_attempts": 2}),
            )
        try:
            reply = self._sts.assume_role(
                RoleArn=role, RoleSessionName=name, Policy=policy, DurationSeconds=seconds
            )["Credentials"]
        except (BotoCoreError, ClientError) as error:
            raise StorageError(
                f"No credentials could be had for the table: {type(error).__name__}: {error}",
                retryable=True,
            ) from error
        expires_ms = int(reply["Expiration"].timestamp() * 1000)
        return SessionKeys(
            {
                "s3.access-key-id": reply["AccessKeyId"],
                "s3.secret-access-key": reply["SecretAccessKey"],
                "s3.session-token": reply["SessionToken"],
                "s3.session-token-expires-at-ms": str(expires_ms),
            },
            expires_ms,
        )

    def sign(self, request: SignRequest) -> dict[str, Sequence[str]]:
        """The headers of a request with its signature (AWS Signature Version 4).

        A request is signed without its body, except one whose body was looked at. Raises
        StorageError.
        """
        held = self._session.get_credentials()
        if held is None:
            raise StorageError("The server has no access to S3 itself.")
        named = {
            name: ",".join(values)
            for name, values in request.headers.items()
            if name.startswith("x-amz-") or name in _SIGNED
        }
        data = b"" if request.body is None else request.body.encode()
        signed = AWSRequest(request.method, request.uri, headers=named, data=data)
        keys = held.get_frozen_credentials()
        # a body that the server has not read is signed by the digest that its client sent
        kind = S3SigV4Auth if request.body is not None else _WithoutBody
        kind(keys, "s3", self.endpoint.region).add_auth(signed)
        headers = {name: list(values) for name, values in request.headers.items()}
        return {**headers, **{name.lower(): [value] for name, value in signed.headers.items()}}


class _WithoutBody(S3SigV4Auth):  # type: ignore[misc]
    """Signs what the client says of its body, which it sends to the store alone."""

    def _modify_request_before_signing(self, request: Any) -> None:
        self._said = request.headers.get("x-amz-content-sha256", _UNSIGNED)
        super()._modify_request_before_signing(request)

    def payload(self, request: Any) -> str:  # noqa: ARG002
        """What stands for the body."""
        return str(self._said)


VENDED, SIGNED = "vended-credentials", "remote-signing"
_S3 = frozenset({"s3", "s3a", "s3n"})
_SESSIONS_BYTES_MAX = 16 * 1024 * 1024
_NOT_OF_NAMES = re.compile(r"[^\w+=,.@-]")
_NAME_MAX = 64
_SEPARATOR = "%1F"


@dataclass(frozen=True, slots=True)
class AccessRules:
    """Which access is handed out.

    Attributes:
        role: whose credentials are taken for tables, confined to one; None: none are.
        sts_endpoint: where; None: Amazon's.
        seconds: how long they are good for.
        signs: whether requests are signed.
        partition: of Amazon's resource names.
    """

    role: str | None = None
    sts_endpoint: str | None = None
    seconds: int = 3600
    signs: bool = False
    partition: str = "aws"


@dataclass(frozen=True, slots=True)
class TableAccess:
    """What a client gets beside a table's metadata (REST catalog: LoadTableResult).

    Attributes:
        config: of the table.
        members: further ones of the answer.
        epoch: changes with it, for tags.
    """

    config: Mapping[str, str]
    members: Mapping[str, Any]
    epoch: str

    def __repr__(self) -> str:
        return f"TableAccess(***, {self.epoch})"

    def spliced(self, body: bytes) -> bytes:
        """An answer that ends with an empty `config`, with this access in it."""
        before = body.removesuffix(b"{}}")
        members = orjson.dumps(dict(self.members))[1:]
        between = b"," if self.members else b""
        return before + orjson.dumps(dict(self.config)) + between + members


class FileAccess:
    """Hands out access to tables on S3, to each caller what its privileges allow.

    It is confined to the table's location: where `write.data.path` puts data elsewhere, clients
    need access of their own.

    Args:
        properties: of the catalog, with the server's own keys, and the store's address as clients
            reach it.
        rules: what is handed out.
        environment: clock.
    """

    def __init__(
        self, properties: Mapping[str, str], rules: AccessRules, environment: Environment
    ) -> None:
        self._rules, self._environment = rules, environment
        self._keys = StorageKeys(properties)
        self._sessions: KeptByBytes[tuple[str, str, bool, str | None], SessionKeys]
        self._sessions = KeptByBytes(_SESSIONS_BYTES_MAX)

    def offered(
        self, wanted: str | None, caller: Caller, name: Identifier, metadata: TableMetadata
    ) -> TableAccess | None:
        """What a client gets that asks for access.

        Args:
            wanted: the header `X-Iceberg-Access-Delegation`.
            caller: who asks, with the privilege to read the table.
            name: of the table.
            metadata: its newest version.

        Raises StorageError: the credentials cannot be had.
        """
        ways = {way.strip() for way in (wanted or "").split(",")}
        if parse(metadata.location).scheme not in _S3:
            return None
        if VENDED in ways and self._rules.role is not None:
            session = self._session(caller, name, metadata)
            endpoint = f"{_path(name)}/credentials"
            return TableAccess(
                {
                    **self._keys.client_settings(),
                    **session.config,  # for clients from before storage-credentials
                    "client.refresh-credentials-endpoint": endpoint,
                },
                {"storage-credentials": _listed(metadata, session)},
                f"{VENDED} {session.expires_ms}",
            )
        if SIGNED in ways and self._rules.signs:
            endpoint = f"{_path(name)}/sign"
            return TableAccess(
                {
                    **self._keys.client_settings(),
                    "s3.remote-signing-enabled": "true",
                    "s3.signer": "S3V4RestSigner",
                    "s3.signer.endpoint": endpoint,
                    "signer.endpoint": endpoint,
                },
                {"remote-signing-config": {"properties": {}, "headers": {}}},
                SIGNED,
            )
        return None

    def credentials(
        self, caller: Caller, name: Identifier, metadata: TableMetadata
    ) -> list[dict[str, Any]]:
        """Credentials for a table (REST catalog: LoadCredentialsResponse).

        Raises UnsupportedFeatureError: none are handed out, or not for this storage.
        """
        scheme = parse(metadata.location).scheme
        if self._rules.role is None or scheme not in _S3:
            why = f", since its files are at {scheme}://: on S3 alone" if scheme not in _S3 else ""
            raise UnsupportedFeatureError(f"No credentials are handed out for {name}{why}.")
        return _listed(metadata, self._session(caller, name, metadata))

    def sign(
        self, caller: Caller, name: Identifier, metadata: TableMetadata, request: SignRequest
    ) -> dict[str, Sequence[str]]:
        """The headers of a request with a signature.

        Raises ForbiddenError: it is about something else than the table's files, or changes them
        for a caller who may not. UnsupportedFeatureError: nothing is signed here.
        """
        if not self._rules.signs or parse(metadata.location).scheme not in _S3:
            raise UnsupportedFeatureError(f"No requests are signed for {name}.")

        def is_own(location: str) -> bool:
            folder = metadata.location
            return lies_within(location, folder) and not lies_within(folder, location)

        writes = _may_write(caller, name)
        check_signable(request, self._keys.endpoint, is_own, writes=writes)
        return self._keys.sign(request)

    def _session(self, caller: Caller, name: Identifier, metadata: TableMetadata) -> SessionKeys:
        rules, writes = self._rules, _may_write(caller, name)
        if rules.role is None:
            raise UnsupportedFeatureError(f"No credentials are handed out for {name}.")
        key = (metadata.table_uuid, metadata.location, writes, caller.name)
        now_ms = self._environment.now_ms()
        session = self._sessions.get(key)
        # those that were handed out before are good for half of their life, at least
        if session is not None and session.expires_ms - now_ms > rules.seconds * 500:
            return session
        policy = session_policy([metadata.location], writes=writes, partition=rules.partition)
        session_name = _NOT_OF_NAMES.sub("-", f"lakehouse-{caller.name or 'anyone'}")[:_NAME_MAX]
        keys = self._keys.session(
            rules.role, policy, rules.seconds, session_name, rules.sts_endpoint
        )
        self._sessions.put(key, keys, bytes_of(key, keys.config))
        return keys


def _may_write(caller: Caller, name: Identifier) -> bool:
    return caller.may(Privilege.WRITE, (*name.namespace, name.name))


def _listed(metadata: TableMetadata, session: SessionKeys) -> list[dict[str, Any]]:
    # the slash keeps a table apart whose name begins alike
    prefix = metadata.location.rstrip("/") + "/"
    return [{"prefix": prefix, "config": dict(session.config)}]


def _path(name: Identifier) -> str:
    namespace = _SEPARATOR.join(quote(level, safe="") for level in name.namespace)
    return f"v1/namespaces/{namespace}/tables/{quote(name.name, safe='')}"


_READS = ("s3:GetObject", "s3:GetObjectVersion")
_WRITES = (
    *("s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"),
    "s3:ListMultipartUploadParts",
)
_SPECIAL = re.compile(r"[*?$]")


def session_policy(folders: Sequence[str], *, writes: bool, partition: str = "aws") -> str:
    """The policy of a session: the table's folders, to read or also to write.

    >>> print(session_policy(["s3://lake/raw/t"], writes=False)[:71])
    {"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:Ge

    Args:
        folders: locations on S3.
        writes: whether objects may be put and deleted.
        partition: of Amazon's resource names.
    """
    parsed = [parse(folder) for folder in folders]
    objects = [
        f"arn:{partition}:s3:::{folder.authority}/{_literal(folder.path.rstrip('/'))}/*"
        for folder in parsed
    ]
    statements: list[dict[str, Any]] = [
        {
            "Effect": "Allow",
            "Action": [*_READS, *(_WRITES if writes else ())],
            "Resource": sorted(objects),
        }
    ]
    for bucket in sorted({folder.authority for folder in parsed}):
        resource = f"arn:{partition}:s3:::{bucket}"
        prefixes = sorted(
            f"{_literal(folder.path.rstrip('/'))}/*"
            for folder in parsed
            if folder.authority == bucket
        )
        statements.append(
            {
                "Effect": "Allow",
                "Action": ["s3:ListBucket"],
                "Resource": [resource],
                "Condition": {"StringLike": {"s3:prefix": prefixes}},
            }
        )
        statements.append(
            {"Effect": "Allow", "Action": ["s3:GetBucketLocation"], "Resource": [resource]}
        )
    return orjson.dumps({"Version": "2012-10-17", "Statement": statements}).decode()


def _literal(key: str) -> str:
    """A key in which nothing is a wildcard or a variable."""
    return _SPECIAL.sub(lambda special: f"${{{special[0]}}}", key)
