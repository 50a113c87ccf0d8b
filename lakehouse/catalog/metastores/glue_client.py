"""Asking Glue, by botocore (`pip install 'pylakehouse[signing]'`): keys, regions, and errors.

Nothing but questions is tried again: a change whose reply was lost would be refused the second
time, as if somebody else had made it.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Any

from lakehouse.catalog.metastores.metastore_catalog import Missing, Overtaken, Refusal, Taken
from lakehouse.catalog.redaction import hide_in_urls
from lakehouse.environment import Environment
from lakehouse.errors import InvalidInputError, StorageError
from lakehouse.patience import patience

_REFUSALS: dict[str, type[Refusal]] = {
    "EntityNotFoundException": Missing,
    "AlreadyExistsException": Taken,
    "ConcurrentModificationException": Overtaken,
}
_BUSY = (
    "ThrottlingException",
    "Throttling",
    "TooManyRequestsException",
    "ResourceNotReadyException",
)
_UNFINISHED = ("OperationTimeoutException", "InternalServiceException")
_SERVER_ERROR = 500
_TIMEOUT_SECONDS = 60
_REGION = re.compile("[a-z0-9-]+")


class GlueClient:
    """Glue of one account and region. Safe to share between threads.

    Args:
        uri: `glue://REGION`, or `glue://`.
        properties: of the catalog, by the names of pyiceberg: `glue.region`, `glue.endpoint`,
            `glue.id` (of the account whose catalog it is), `glue.access-key-id`,
            `glue.secret-access-key`, `glue.session-token`, `glue.profile-name`; the same below
            `client.`; else what AWS's tools read.
        environment: clock, sleep and jitter.

    Raises:
        InvalidInputError: botocore is not installed, a key without its secret, no such profile, or
            no region.
    """

    def __init__(self, uri: str, properties: Mapping[str, str], environment: Environment) -> None:
        def given(name: str) -> str | None:
            return properties.get(f"glue.{name}") or properties.get(f"client.{name}") or None

        try:
            sessions = importlib.import_module("botocore.session")
        except ImportError as error:
            raise InvalidInputError(
                "Glue is asked by botocore: pip install 'pylakehouse[signing]'."
            ) from error
        self._errors = importlib.import_module("botocore.exceptions")
        of = self._errors
        self._unsent = (of.EndpointConnectionError, of.ConnectTimeoutError, of.ProxyConnectionError)
        self._unasked = (
            of.ParamValidationError,
            of.NoCredentialsError,
            of.CredentialRetrievalError,
        )
        config = importlib.import_module("botocore.config").Config(
            retries={"total_max_attempts": 1},
            connect_timeout=_TIMEOUT_SECONDS,
            read_timeout=_TIMEOUT_SECONDS,
        )
        region = uri.partition("://")[2].strip("/") or given("region")
        if region and _REGION.fullmatch(region) is None:
            raise InvalidInputError(f"{hide_in_urls(uri)} names no region: glue://eu-central-1.")
        key, secret = given("access-key-id"), given("secret-access-key")
        if bool(key) != bool(secret):
            raise InvalidInputError(
                "glue.access-key-id and glue.secret-access-key are given together."
            )
        try:
            self._client = sessions.Session(profile=given("profile-name")).create_client(
                "glue",
                region_name=region,
                endpoint_url=given("endpoint"),
                aws_access_key_id=key,
                aws_secret_access_key=secret,
                aws_session_token=given("session-token"),
                config=config,
            )
        except (self._errors.BotoCoreError, ValueError) as error:
            raise InvalidInputError(
                f"{hide_in_urls(uri)}: {error} Name the region: glue://eu-central-1."
            ) from error
        account = given("id")
        self._account = {} if account is None else {"CatalogId": account}
        self.uri = f"glue://{self._client.meta.region_name}" + (f"/{account}" if account else "")
        self._patience = patience(properties, "catalog.retry-timeout-ms", environment)

    def call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """What one operation answers.

        Raises:
            Refusal: nothing was done.
            StorageError: outcome "failed": nothing was done; "unknown": perhaps it was.
        """
        try:
            answer: dict[str, Any] = getattr(self._client, operation)(**self._account, **arguments)
        except self._errors.ClientError as error:
            code, message = error.response["Error"]["Code"], error.response["Error"]["Message"]
            if code in _REFUSALS:
                raise _REFUSALS[code](message) from None
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            is_unknown = code in _UNFINISHED or status >= _SERVER_ERROR
            raise StorageError(
                f"{self.uri}: {operation}: {code}: {message}",
                retryable=is_unknown or code in _BUSY,
                commit_outcome="unknown" if is_unknown else "failed",
            ) from error
        except self._unsent as error:
            raise StorageError(
                f"{self.uri} is not reached: {error}", retryable=True, commit_outcome="failed"
            ) from error
        except self._unasked as error:
            raise StorageError(f"{self.uri}: {error}", commit_outcome="failed") from error
        # an answer that is no JSON is an error of its own, and no BotoCoreError
        except Exception as error:
            raise StorageError(
                f"{self.uri}: {operation}: {error}", retryable=True, commit_outcome="unknown"
            ) from error
        return answer

    def ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """What an operation answers that may be repeated, while Glue is away or busy."""
        return self._patience.call(lambda: self.call(operation, **arguments))

    def all(self, operation: str, part: str, **arguments: Any) -> list[dict[str, Any]]:
        """What an operation lists on all its pages."""
        listed: list[dict[str, Any]] = []
        page: dict[str, str] = {}
        while True:
            answer = self.ask(operation, **arguments, **page)
            listed += answer[part]
            if not answer.get("NextToken"):
                return listed
            page = {"NextToken": answer["NextToken"]}
