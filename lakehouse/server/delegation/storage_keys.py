"""The server's own access to S3: it signs with it, and takes credentials for tables by it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import botocore.session
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from lakehouse.errors import InvalidInputError, StorageError
from lakehouse.server.delegation.signable_requests import Endpoint, SignRequest
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
