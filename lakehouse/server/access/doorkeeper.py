"""Asks who is calling: bearer tokens, or a name with a secret (RFC 6750, 7617, 6749, 8693)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import unquote

from lakehouse.environment import Environment
from lakehouse.server.access.bearer_tokens import BearerTokens, Verified, not_authorized
from lakehouse.server.access.hashed_secrets import HashedSecret
from lakehouse.server.access.principals_file import Rules
from lakehouse.server.access.privileges import Caller
from lakehouse.server.error_answers import HttpError

_KEPT_MAX = 4096
_BASIC_MS = 300_000
_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - the name of a type
_JWT = "urn:ietf:params:oauth:token-type:jwt"
_NOBODY = HashedSecret.of("compared with where there is no principal, to take as long")


class OAuthError(HttpError):
    """What the endpoint of tokens refuses (RFC 6749, 5.2)."""


class Doorkeeper:
    """Tells callers by what they bring. Safe between threads.

    Args:
        rules: who may do what.
        catalog: its name, for which tokens are good.
        environment: clock and ids.
    """

    def __init__(self, rules: Rules, catalog: str, environment: Environment) -> None:
        self._rules, self._environment = rules, environment
        self._tokens = BearerTokens(rules, catalog, environment)
        self._lock = threading.Lock()
        self._kept: OrderedDict[bytes, Verified] = OrderedDict()
        self._salt = secrets.token_bytes(32)

    def remembered(self, authorization: str | None) -> Caller | None:
        """The caller, if they came with the same before; this takes no time."""
        if authorization is None:
            return None
        with self._lock:
            found = self._kept.get(self._digest(authorization))
        now_ms = self._environment.now_ms()
        return None if found is None or found.until_ms <= now_ms else found.caller

    def caller(self, authorization: str | None) -> Caller:
        """Who brings this header `Authorization`. Raises HttpError: 401, 419."""
        scheme, _, value = (authorization or "").strip().partition(" ")
        if scheme.lower() == "bearer":
            found = self._tokens.verify(value.strip())
        elif scheme.lower() == "basic":
            name, secret = _basic(value)
            caller = self._with_secret(name, secret)
            found = Verified(caller, (), self._environment.now_ms() + _BASIC_MS)
        else:
            raise not_authorized("Say who you are: a bearer token, or a name with its secret.")
        with self._lock:
            self._kept[self._digest(authorization or "")] = found
            while len(self._kept) > _KEPT_MAX:
                self._kept.popitem(last=False)
        return found.caller

    def token(self, form: Mapping[str, str], authorization: str | None) -> dict[str, object]:
        """A token, for a name with its secret or for another token.

        Args:
            form: the body of the request.
            authorization: its header: a client may say there who it is.

        Raises OAuthError.
        """
        grant = form.get("grant_type")
        if grant == "client_credentials":
            token, seconds = self._tokens.sign(self._client(form, authorization))
        elif grant == _EXCHANGE:
            token, seconds = self._exchanged(form)
        else:
            raise OAuthError(400, "unsupported_grant_type", f"grant_type is {grant!r}.")
        issued: dict[str, object] = {
            "access_token": token,
            "token_type": "bearer",
            "expires_in": seconds,
            "issued_token_type": _ACCESS_TOKEN,
        }
        return issued | ({"scope": form["scope"]} if "scope" in form else {})

    def _client(self, form: Mapping[str, str], authorization: str | None) -> str:
        if "client_secret" in form:
            name, secret = form.get("client_id", ""), form["client_secret"]
        else:
            scheme, _, value = (authorization or "").partition(" ")
            if scheme.lower() != "basic":
                raise OAuthError(400, "invalid_request", "client_id and client_secret are missing.")
            with _refused_as(401, "invalid_client"):
                name, secret = (unquote(one) for one in _basic(value))
        with _refused_as(401, "invalid_client"):
            self._with_secret(name, secret)
        return name

    def _exchanged(self, form: Mapping[str, str]) -> tuple[str, int]:
        kind = form.get("subject_token_type")
        if kind not in (_ACCESS_TOKEN, _JWT):
            raise OAuthError(400, "invalid_request", f"subject_token_type is {kind!r}.")
        with _refused_as(400, "invalid_grant"):
            found = self._tokens.verify(form.get("subject_token", ""))
        name = str(found.caller.name)
        return self._tokens.sign(name, None if name in self._rules.roles_of else found)

    def _with_secret(self, name: str, secret: str) -> Caller:
        known = self._rules.secrets.get(name)
        # as long for a name that is unknown as for a wrong secret
        holds = (known or _NOBODY).matches(secret)
        if known is None or not holds:
            raise not_authorized("There is no principal of this name with this secret.")
        return self._rules.caller(name, self._rules.roles_of[name])

    def _digest(self, authorization: str) -> bytes:
        return hmac.new(self._salt, authorization.encode(), hashlib.sha256).digest()


@contextmanager
def _refused_as(status: int, kind: str) -> Iterator[None]:
    """What the endpoint of tokens says where others say 401 or 419."""
    try:
        yield
    except HttpError as error:
        raise OAuthError(status, kind, error.message) from error


def _basic(value: str) -> tuple[str, str]:
    try:
        text = base64.b64decode(value.strip(), validate=True).decode()
    except ValueError as error:  # no Base64, or no text
        raise not_authorized("The name and the secret cannot be read.") from error
    name, colon, secret = text.partition(":")
    if not colon:
        raise not_authorized("The name and the secret cannot be read.")
    return name, secret
