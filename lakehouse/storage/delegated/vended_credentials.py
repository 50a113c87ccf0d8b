"""Credentials that a catalog's server hands out for a table's files, renewed before they end.

REST catalog: StorageCredential, LoadTableResult.config, loadCredentials. Properties, the names that
Iceberg's own clients use: `s3.access-key-id`, `s3.secret-access-key`, `s3.session-token`,
`s3.session-token-expires-at-ms`; `gcs.oauth2.token`, `gcs.oauth2.token-expires-at`;
`adls.sas-token.<account>`, `adls.sas-token-expires-at-ms.<account>`;
`client.refresh-credentials-endpoint` (asked at `uri`, with the catalog's login),
`client.refresh-credentials-enabled`; and `storage-credentials`, the server's list as JSON.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from lakehouse.environment import Environment
from lakehouse.errors import CorruptMetadataError, StorageError, UnsupportedFeatureError
from lakehouse.spec.json_fields import require_list, require_object, require_str, string_map
from lakehouse.storage.location import canonical

STORAGE_CREDENTIALS = "storage-credentials"
"""Storage property: the server's list, as JSON."""
REFRESH_ENDPOINT = "client.refresh-credentials-endpoint"
_REFRESH_ENABLED = "client.refresh-credentials-enabled"
_EXPIRES = "s3.session-token-expires-at-ms"
_ENDS = (_EXPIRES, "gcs.oauth2.token-expires-at", "adls.sas-token-expires-at-ms.")
_USABLE = ("s3.access-key-id", "gcs.oauth2.token", "adls.sas-token")
_KEY, _SECRET, _TOKEN = "s3.access-key-id", "s3.secret-access-key", "s3.session-token"
_EARLY_SHARE, _EARLY_MS_MAX = 0.2, 300_000
"""How long before their end credentials are renewed: a share of their life, minutes at most."""


@dataclass(frozen=True, slots=True)
class StorageCredential:
    """Access to what lies below a prefix.

    Attributes:
        prefix: of locations; empty for all of them.
        config: the credentials, as storage properties.
    """

    prefix: str
    config: Mapping[str, str] = field(repr=False)

    @property
    def expires_ms(self) -> int | None:
        """When they end, milliseconds since the epoch; None: never, or nobody says."""
        ends = [text for name, text in self.config.items() if name.startswith(_ENDS)]
        return min((int(text) for text in ends if text.isdecimal()), default=None)

    def holds(self, location: str) -> bool:
        """Whether they are for a location, whatever alias of its scheme either has."""
        return canonical(location).startswith(_canonical_prefix(self.prefix))


def credentials_from_json(document: Any, where: str) -> list[StorageCredential]:
    """The server's list. Raises CorruptMetadataError."""
    credentials = []
    for position, item in enumerate(require_list(document, where)):
        at = f"{where}[{position}]"
        credential = require_object(item, at)
        config = string_map(credential.get("config"), f"{at}.config")
        credentials.append(StorageCredential(require_str(credential, "prefix", at), config))
    return credentials


def credentials_to_text(credentials: Sequence[StorageCredential]) -> str:
    """The value of the property `storage-credentials`."""
    listed = [
        {"prefix": credential.prefix, "config": dict(credential.config)}
        for credential in credentials
    ]
    return orjson.dumps(listed).decode()


class VendedCredentials:
    """The credentials among a storage's properties. Safe to share between threads.

    Args:
        properties: of the storage.
        environment: clock.

    Raises CorruptMetadataError: a list that is none.
    """

    def __init__(self, properties: Mapping[str, str], environment: Environment) -> None:
        self._properties, self._environment = properties, environment
        self._lock = threading.Lock()
        text = properties.get(STORAGE_CREDENTIALS)
        self._all: list[StorageCredential] = []
        if text is not None:
            self._all = credentials_from_json(_loaded(text), STORAGE_CREDENTIALS)
        elif any(name.startswith(_ENDS) for name in properties):
            named = {
                name: value
                for name, value in properties.items()
                if name.startswith((*_USABLE, *_ENDS, _SECRET, _TOKEN))
            }
            self._all = [StorageCredential("", named)]
        self._renew_ms = self._renewal()

    def of(self, location: str) -> StorageCredential | None:
        """The most specific credentials for a location, as they are now; None: there are none.

        Raises StorageError: they ended, and the server gave no others.
        """
        if not self._all:
            return None
        if self.renews and self._environment.now_ms() >= self._renew_ms:
            self._renew()
        fitting = [credential for credential in self._all if credential.holds(location)]
        return max(fitting, key=lambda credential: len(credential.prefix), default=None)

    @property
    def renews(self) -> bool:
        """Whether the server gives others when these end."""
        enabled = self._properties.get(_REFRESH_ENABLED, "true").lower() == "true"
        return enabled and REFRESH_ENDPOINT in self._properties and "uri" in self._properties

    def is_ending(self) -> bool:
        """Whether it is time for others."""
        return bool(self._all) and self._environment.now_ms() >= self._renew_ms

    def _renew(self) -> None:
        with self._lock:
            if self._environment.now_ms() < self._renew_ms:
                return
            endpoint = self._properties[REFRESH_ENDPOINT]
            try:
                document = _loaded(renewed_credentials(self._properties, endpoint))
                listed = require_object(document, "credentials").get(STORAGE_CREDENTIALS)
                self._all = credentials_from_json(listed, STORAGE_CREDENTIALS)
            except StorageError as error:
                if self._environment.now_ms() < self._end_ms():
                    return  # those that are there are good for a while
                raise StorageError(
                    f"The credentials ended, and the server gave no others: {error.message}",
                    retryable=error.retryable,
                ) from error
            self._renew_ms = self._renewal()

    def _end_ms(self) -> float:
        ends = [
            credential.expires_ms for credential in self._all if credential.expires_ms is not None
        ]
        return min(ends, default=float("inf"))

    def _renewal(self) -> float:
        now, end = self._environment.now_ms(), self._end_ms()
        return end - min((end - now) * _EARLY_SHARE, _EARLY_MS_MAX) if end > now else end


def check_usable(credential: StorageCredential) -> None:
    """Raise UnsupportedFeatureError for credentials of another kind than those of the module."""
    if not any(name.startswith(_USABLE) for name in credential.config):
        names = ", ".join(sorted(credential.config))
        raise UnsupportedFeatureError(
            f"The server hands out credentials for {credential.prefix or 'its storage'} that this "
            f"version cannot use ({names}): it knows {', '.join(_USABLE)}."
        )


def _canonical_prefix(prefix: str) -> str:
    scheme, separator, _ = prefix.partition("://")
    if not separator:  # a scheme alone, as some servers send, or nothing
        return canonical(f"{prefix}://x").partition("://")[0] if prefix else ""
    if not prefix[len(scheme) + 3 :]:
        return canonical(f"{prefix}x")[:-1]
    return canonical(prefix.rstrip("/")) + ("/" if prefix.endswith("/") else "")


def _loaded(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        # the text holds secrets
        raise CorruptMetadataError(f"{STORAGE_CREDENTIALS} is no JSON.") from error


def renewed_credentials(properties: Mapping[str, str], endpoint: str) -> str:
    """The answer, JSON, of the catalog's server (REST catalog: loadCredentials).

    Args:
        properties: of the storage: `uri` and the login of the catalog, `token` of the table.
        endpoint: an address, or a path below `uri`.

    Raises StorageError, ForbiddenError.
    """
    # what sends requests takes a while to import, and most storages have keys
    from lakehouse.rest.http_client import shared_client  # noqa: PLC0415
    from lakehouse.rest.refusals import CATALOG, refusal  # noqa: PLC0415

    client = shared_client(properties["uri"], properties)
    answer = client.send("GET", endpoint, token=properties.get("token"))
    if answer.status_code >= 300:
        raise refusal(answer, "credentials", CATALOG)
    return answer.text
