"""Signatures for requests to S3 from who has the keys (REST catalog: RemoteSignRequest).

Properties: `s3.remote-signing-enabled`; `signer.endpoint` (`s3.signer.endpoint`), an address or a
path below `signer.uri` (`s3.signer.uri`, else `uri`), asked with the catalog's login; and
`remote-signing-config`, the server's as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin

import orjson

from lakehouse.errors import CorruptMetadataError, InvalidInputError
from lakehouse.rest.http_client import shared_client
from lakehouse.rest.refusals import CATALOG, refusal
from lakehouse.rest.rest_session import body_of
from lakehouse.spec.json_fields import require_list, require_object, require_str
from lakehouse.storage.s3_client import SIGNED_ELSEWHERE

ENDPOINT, OLD_ENDPOINT = "signer.endpoint", "s3.signer.endpoint"
SIGNING_CONFIG = "remote-signing-config"
"""Storage property: what the server wants in every request, as JSON."""
_WITH_BODY = "DeleteObjects"


class RemoteSigner:
    """Has requests signed; an event handler of botocore's (`before-sign.s3`).

    Args:
        properties: of the storage.

    Raises InvalidInputError: they do not say who signs.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        base = _first(properties, "signer.uri", "s3.signer.uri", "uri")
        endpoint = _first(properties, ENDPOINT, OLD_ENDPOINT)
        if base is None or endpoint is None:
            raise InvalidInputError(f"{SIGNED_ELSEWHERE} needs {ENDPOINT}, and uri: nobody signs.")
        self._client = shared_client(properties.get("uri", base), properties)
        # the client adds its own address, without a login, to what is only a path
        is_elsewhere = _first(properties, "signer.uri", "s3.signer.uri") is not None
        self._url = urljoin(f"{base.rstrip('/')}/", endpoint) if is_elsewhere else endpoint
        self._token = properties.get("token")
        config = orjson.loads(properties.get(SIGNING_CONFIG, "{}"))
        self._properties = dict(config.get("properties") or {})
        self._headers = {
            name: ", ".join(values) for name, values in (config.get("headers") or {}).items()
        }

    def __call__(self, request: Any, region_name: str, operation_name: str, **_more: Any) -> None:
        """Add the signature to a request. Raises ForbiddenError, StorageError."""
        body: dict[str, Any] = {
            "region": region_name,
            "uri": request.url,
            "method": request.method,
            "headers": {name: [_text(value)] for name, value in request.headers.items()},
            "properties": self._properties,
            "provider": "s3",
        }
        if operation_name == _WITH_BODY:
            body["body"] = _text(request.data)
        answer = self._client.send(
            "POST", self._url, body, headers=self._headers, token=self._token, repeatable=True
        )
        if answer.status_code >= 300:
            raise refusal(answer, "a request to S3", CATALOG)
        self._apply(request, body_of(answer, "signature"))

    def _apply(self, request: Any, document: Mapping[str, Any]) -> None:
        request.url = require_str(document, "uri", "signature")
        for name, values in require_object(document.get("headers"), "signature.headers").items():
            listed = require_list(values, f"signature.headers.{name}")
            if not all(isinstance(value, str) for value in listed):
                raise CorruptMetadataError(f"signature.headers.{name} must be texts.")
            del request.headers[name]
            request.headers[name] = ", ".join(listed)


def _first(properties: Mapping[str, str], *names: str) -> str | None:
    return next((properties[name] for name in names if name in properties), None)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes | bytearray) else str(value)
