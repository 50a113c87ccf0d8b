"""Who a client says that it is: nobody, a name with a password, a token, an OAuth2 client.

https://iceberg.apache.org/docs/latest/catalog-properties/ (OAuth2), RFC 6749 section 4.4.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import orjson
from requests import Response

from lakehouse.environment import Environment
from lakehouse.errors import InvalidInputError, StorageError

_EARLY_SHARE, _EARLY_MS_MAX = 0.1, 300_000
"""How long before its end a token is replaced: a share of its life, some minutes at most."""
_OPTIONAL = ("audience", "resource")
_UNSERVED = ("rest.sigv4-enabled", "rest.auth.type")

Post = Callable[[str, Mapping[str, str]], Response]
"""Sends a form to a URL. Raises StorageError where there is no answer."""


class Login(Protocol):
    """What stands in a request's `Authorization`."""

    def authorization(self) -> str | None:
        """The header's value, asked for before each request. Raises StorageError."""

    def refused(self, authorization: str | None) -> bool:
        """Take note that the server refused a value; whether `authorization` has another now."""


class FixedLogin:
    """The same value always, or none."""

    def __init__(self, value: str | None) -> None:
        self._value = value

    def authorization(self) -> str | None:
        """The header's value."""
        return self._value

    def refused(self, authorization: str | None) -> bool:
        """There is no other one."""
        return authorization != self._value


class ClientCredentials:
    """A token for an id and a secret, asked for again before it ends, and where it is refused.

    Args:
        url: of the token's issuer.
        form: of the request, with the secret.
        post: sends it.
        environment: clock.
    """

    def __init__(
        self, url: str, form: Mapping[str, str], post: Post, environment: Environment
    ) -> None:
        self._url, self._form, self._post = url, form, post
        self._environment = environment
        self._lock = threading.Lock()
        self._token: str | None = None
        self._until_ms: float = 0

    def authorization(self) -> str | None:
        """The header's value, with a token that is good for a while."""
        with self._lock:
            if self._token is None or self._environment.now_ms() >= self._until_ms:
                self._token, self._until_ms = self._ask()
            return f"Bearer {self._token}"

    def refused(self, authorization: str | None) -> bool:
        """Forget the token, unless another thread did so already."""
        with self._lock:
            if authorization == f"Bearer {self._token}":
                self._token = None
        return True

    def _ask(self) -> tuple[str, float]:
        asked_ms = self._environment.now_ms()
        answer = self._post(self._url, self._form)
        document = _object(answer)
        token = document.get("access_token")
        if answer.status_code != 200 or not isinstance(token, str):
            # the description is the server's; the form with the secret is quoted nowhere
            told = str(document.get("error_description") or document.get("error") or "")[:200]
            raise StorageError(
                f"{self._url} gave no token (HTTP {answer.status_code}): {told or 'no reason'}",
                outcome="failed",
            )
        seconds = document.get("expires_in")
        if not isinstance(seconds, int | float) or seconds <= 0:
            return token, float("inf")
        life_ms = seconds * 1000
        return token, asked_ms + life_ms - min(life_ms * _EARLY_SHARE, _EARLY_MS_MAX)


def login_of(
    uri: str,
    properties: Mapping[str, str],
    basic: tuple[str, str] | None,
    post: Post,
    environment: Environment,
) -> Login:
    """The login that properties name.

    `credential` (`id:secret`, or a secret alone) with `oauth2-server-uri`, `scope`, `audience` and
    `resource`; else `token`; else the name and password of the URL; else none.

    Args:
        uri: of the server, which issues tokens where no `oauth2-server-uri` is given.
        properties: of the catalog.
        basic: name and password.
        post: sends a form.
        environment: clock.

    Raises:
        InvalidInputError: a login of a kind that this client does not have.
    """
    for name in _UNSERVED:
        if properties.get(name, "false").lower() not in ("false", "none", "oauth2", "basic"):
            raise InvalidInputError(f"{name} = {properties[name]}: this client cannot log in so.")
    credential = properties.get("credential")
    if credential:
        client, found, secret = credential.partition(":")
        form = {
            "grant_type": "client_credentials",
            **({"client_id": client, "client_secret": secret} if found else {}),
            **({} if found else {"client_secret": credential}),
            "scope": properties.get("scope", "catalog"),
            **{name: properties[name] for name in _OPTIONAL if name in properties},
        }
        url = properties.get("oauth2-server-uri") or f"{uri}/v1/oauth/tokens"
        return ClientCredentials(url, form, post, environment)
    if properties.get("token"):
        return FixedLogin(f"Bearer {properties['token']}")
    if basic is not None:
        encoded = base64.b64encode(":".join(basic).encode()).decode()
        return FixedLogin(f"Basic {encoded}")
    return FixedLogin(None)


def _object(answer: Response) -> dict[str, Any]:
    try:
        found = orjson.loads(answer.content)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}
