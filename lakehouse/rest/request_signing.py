"""Requests signed with keys of AWS, as Glue, S3 Tables and API Gateway want them (Signature V4).

Properties, the names that pyiceberg and Iceberg's Java library use: `rest.sigv4-enabled` (or
`rest.auth.type=sigv4`), `rest.signing-name` (execute-api; `glue`, `s3tables`),
`rest.signing-region` (else `client.region`, else that of AWS's tools); keys as
`client.access-key-id`, `client.secret-access-key` and `client.session-token` (or the same below
`rest.`), else those that AWS's tools find, for `client.profile-name`.

A login beside the signature goes as `Original-Authorization`, as those two send it.
Through botocore (`pip install 'pylakehouse[signing]'`).
"""

from __future__ import annotations

import hashlib
import importlib
import os
import threading
from collections.abc import Mapping
from typing import Any

from requests.models import PreparedRequest, Response

from lakehouse.errors import InvalidInputError, StorageError, UnsupportedFeatureError

_KEYS = ("access-key-id", "secret-access-key", "session-token")
_SIGNED_TOO = ("content-type", "host")
_ENDED = (b"ExpiredToken", b"security token included in the request is expired")


class RequestSigner:
    """Signs prepared requests; `auth` of a request. Safe to share between threads.

    Args:
        properties: see the module.

    Raises:
        UnsupportedFeatureError: botocore is not installed.
        InvalidInputError: a key without its secret, no such profile, or no region.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        try:
            self._sessions = importlib.import_module("botocore.session")
        except ImportError as error:
            raise UnsupportedFeatureError(
                "rest.sigv4-enabled needs botocore: pip install 'pylakehouse[signing]'."
            ) from error
        self._auth = importlib.import_module("botocore.auth")
        self._requests = importlib.import_module("botocore.awsrequest")
        self._errors = importlib.import_module("botocore.exceptions")
        self._properties = properties
        self._lock = threading.Lock()
        self._service = properties.get("rest.signing-name", "execute-api")
        self._session: Any = None
        self._credentials: Any = None
        region = properties.get("rest.signing-region") or properties.get("client.region")
        self._region = region or self._region_of_tools()

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        """Sign a request. Raises InvalidInputError, StorageError: there are no keys."""
        headers = request.headers
        # a blank is %20 in what is signed, and + in what requests would send
        path, mark, query = str(request.url).partition("?")
        request.url = path + mark + query.replace("+", "%20")
        if "Authorization" in headers:
            headers["Original-Authorization"] = headers.pop("Authorization")
        body: Any = request.body or b""  # the client sends bytes and text
        data = body.encode() if isinstance(body, str) else bytes(body)
        headers["x-amz-content-sha256"] = hashlib.sha256(data).hexdigest()
        # proxies change others
        named = {
            name: value
            for name, value in headers.items()
            if name.lower().startswith("x-amz-") or name.lower() in _SIGNED_TOO
        }
        signed = self._requests.AWSRequest(request.method, request.url, named, data)
        self._auth.SigV4Auth(self._keys(), self._service, self._region).add_auth(signed)
        headers.update(dict(signed.headers))
        return request

    def has_others(self, answer: Response) -> bool:
        """Whether a server refused keys as ended, and there are others now."""
        if answer.status_code not in (400, 401, 403) or not any(
            mark in answer.content for mark in _ENDED
        ):
            return False
        with self._lock:  # files and variables of the environment are read anew
            self._session = self._credentials = None
        keys = self._keys()
        return bool(answer.request.headers.get("X-Amz-Security-Token") != keys.token)

    def _keys(self) -> Any:
        try:
            with self._lock:
                if self._credentials is None:
                    self._credentials = self._looked_up()
                return self._credentials.get_frozen_credentials()
        except (self._errors.BotoCoreError, RuntimeError) as error:
            raise StorageError(
                f"Keys of AWS to sign with cannot be had: {error}", commit_outcome="failed"
            ) from error

    def _looked_up(self) -> Any:
        for start in ("rest.", "client."):
            key, secret, token = (self._properties.get(start + name) for name in _KEYS)
            if key and secret:
                return importlib.import_module("botocore.credentials").Credentials(
                    key, secret, token
                )
            if key or secret:
                raise InvalidInputError(
                    f"{start}access-key-id and {start}secret-access-key are given together."
                )
        credentials = self._tools().get_credentials()
        if credentials is None:
            raise InvalidInputError(
                "rest.sigv4-enabled: there are no keys of AWS to sign with. Give "
                "client.access-key-id and client.secret-access-key, or what AWS's tools read: "
                "AWS_ACCESS_KEY_ID, AWS_PROFILE, a role of the machine."
            )
        return credentials

    def _tools(self) -> Any:
        if self._session is None:
            profile = self._properties.get("client.profile-name")
            self._session = self._sessions.Session(profile=profile)
        return self._session

    def _region_of_tools(self) -> str:
        try:
            region = os.environ.get("AWS_REGION") or self._tools().get_config_variable("region")
        except self._errors.BotoCoreError as error:
            raise InvalidInputError(f"client.profile-name: {error}") from error
        if not region:
            raise InvalidInputError(
                "rest.sigv4-enabled: no region to sign for. Give rest.signing-region."
            )
        return str(region)


def signs(properties: Mapping[str, str]) -> bool:
    """Whether requests are signed with keys of AWS."""
    return (
        properties.get("rest.sigv4-enabled", "false").lower() == "true"
        or properties.get("rest.auth.type", "").lower() == "sigv4"
    )
