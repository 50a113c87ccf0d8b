"""Asks who is calling: bearer tokens, or a name with a secret (RFC 6750, 7617, 6749, 8693)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

import orjson

from lakehouse.environment import Environment
from lakehouse.kept_by_bytes import KeptByBytes
from lakehouse.server.access.bearer_tokens import BearerTokens, Verified, not_authorized
from lakehouse.server.access.hashed_secrets import HashedSecret, SecretChecks
from lakehouse.server.access.principals_file import Rules
from lakehouse.server.access.privileges import Caller
from lakehouse.server.error_answers import HttpError

_KEPT_BYTES_MAX, _SECRETS_BYTES_MAX = 8 * 1024 * 1024, 1024 * 1024
_CALLER_BYTES, _ROLE_BYTES, _SECRET_BYTES = 1536, 128, 768
"""What a caller takes beside their token and roles, a role, and a secret that is known."""
_BASIC_MS = 300_000
_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - the name of a type
_JWT = "urn:ietf:params:oauth:token-type:jwt"
_NOBODY = HashedSecret.of("compared with where there is no principal, to take as long")


class OAuthError(HttpError):
    """What the endpoint of tokens refuses (RFC 6749, 5.2)."""


@dataclass(frozen=True, slots=True)
class _Now:
    """Rules, and the tokens that they have let in."""

    rules: Rules
    tokens: BearerTokens
    kept: KeptByBytes[bytes, Verified] = field(default_factory=lambda: KeptByBytes(_KEPT_BYTES_MAX))


class Doorkeeper:
    """Tells callers by what they bring. Safe between threads.

    Secrets are compared by `check`, which takes long, before anything else is asked.

    Args:
        rules: who may do what.
        catalog: its name, for which tokens are good.
        environment: clock and ids.
        turn: held while a secret is compared.
    """

    def __init__(
        self,
        rules: Rules,
        catalog: str,
        environment: Environment,
        turn: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._catalog, self._environment = catalog, environment
        self._own_key = secrets.token_bytes(64)
        self._salt = secrets.token_bytes(32)
        self._checks = SecretChecks(turn)
        # what was compared stays true of the hash that it was compared with
        self._secrets: KeptByBytes[bytes, HashedSecret] = KeptByBytes(_SECRETS_BYTES_MAX)
        self.follow(rules)

    def follow(self, rules: Rules) -> None:
        """From now on other rules hold, also for tokens that were given before."""
        with_key = replace(rules, token_key=rules.token_key or self._own_key)
        self._now = _Now(rules, BearerTokens(with_key, self._catalog, self._environment))

    def remembered(self, authorization: str | None) -> Caller | None:
        """The caller, if they came with the same before; this takes no time."""
        if authorization is None:
            return None
        verified = self._now.kept.get(self._digest(authorization))
        now_ms = self._environment.now_ms()
        return None if verified is None or verified.until_ms <= now_ms else verified.caller

    def check(self, name: str, secret: str, peer: str) -> Future[bool] | None:
        """Compare the secret of a principal; None: it is known to be the right one.

        Raises HttpError, 429: others of this peer and name wait for that already.
        """
        hashed, what = self._now.rules.secrets.get(name), self._secret(name, secret)
        if hashed is not None and self._secrets.get(what) == hashed:
            return None

        def compare() -> bool:
            # as long for a name that is unknown as for a wrong secret
            holds = (hashed or _NOBODY).matches(secret)
            if hashed is None or not holds:
                return False
            self._secrets.put(what, hashed, _SECRET_BYTES)
            return True

        is_right = self._checks.submit(peer, None if hashed is None else name, what, compare)
        if is_right is None:
            raise HttpError(
                429,
                "TooManyRequestsException",
                "Too many other secrets of this principal are being compared. Try again.",
            )
        return is_right

    def caller(self, authorization: str | None) -> Caller:
        """Who brings this header `Authorization`; a secret in it was checked.

        Raises HttpError: 401, 419.
        """
        now = self._now
        scheme, _, value = (authorization or "").strip().partition(" ")
        if scheme.lower() == "bearer":
            verified = now.tokens.verify(value.strip())
        elif scheme.lower() == "basic":
            name, secret = _basic(value)
            caller = self._with_secret(now.rules, name, secret)
            verified = Verified(caller, (), self._environment.now_ms() + _BASIC_MS)
        else:
            raise not_authorized("Say who you are: a bearer token, or a name with its secret.")
        header = authorization or ""
        size = _CALLER_BYTES + 2 * len(header) + _ROLE_BYTES * len(verified.roles)
        size += _ROLE_BYTES * len(verified.caller.grants)
        now.kept.put(self._digest(header), verified, size)
        return verified.caller

    def token(self, form: Mapping[str, str], authorization: str | None) -> dict[str, object]:
        """A token, for a name with its secret, which was checked, or for another token.

        Args:
            form: the body of the request.
            authorization: its header: a client may say there who it is.

        Raises OAuthError.
        """
        now, grant = self._now, form.get("grant_type")
        if grant == "client_credentials":
            token, seconds = now.tokens.sign(self._client(now.rules, form, authorization))
        elif grant == _EXCHANGE:
            token, seconds = _exchanged(now, form)
        else:
            raise OAuthError(400, "unsupported_grant_type", f"grant_type is {grant!r}.")
        issued: dict[str, object] = {
            "access_token": token,
            "token_type": "bearer",
            "expires_in": seconds,
            "issued_token_type": _ACCESS_TOKEN,
        }
        return issued | ({"scope": form["scope"]} if "scope" in form else {})

    def _client(self, rules: Rules, form: Mapping[str, str], authorization: str | None) -> str:
        name, secret = _client_of(form, authorization)
        with _refused_as(401, "invalid_client"):
            self._with_secret(rules, name, secret)
        return name

    def _with_secret(self, rules: Rules, name: str, secret: str) -> Caller:
        hashed = rules.secrets.get(name)
        if hashed is None or self._secrets.get(self._secret(name, secret)) != hashed:
            raise not_authorized("There is no principal of this name with this secret.")
        return rules.caller(name, rules.roles_of[name])

    def _secret(self, name: str, secret: str) -> bytes:
        return self._digest(orjson.dumps([name, secret]).decode())

    def _digest(self, authorization: str) -> bytes:
        return hmac.new(self._salt, authorization.encode(), hashlib.sha256).digest()


def basic_secret(authorization: str | None) -> tuple[str, str] | None:
    """Name and secret in a header `Authorization`; None: there are none that can be read."""
    scheme, _, value = (authorization or "").strip().partition(" ")
    if scheme.lower() == "basic":
        with suppress(HttpError):
            return _basic(value)
    return None


def client_secret(form: Mapping[str, str], authorization: str | None) -> tuple[str, str] | None:
    """Name and secret in a request for a token; None: there are none that can be read."""
    if form.get("grant_type") == "client_credentials":
        with suppress(HttpError):
            return _client_of(form, authorization)
    return None


def _client_of(form: Mapping[str, str], authorization: str | None) -> tuple[str, str]:
    if "client_secret" in form:
        return form.get("client_id", ""), form["client_secret"]
    scheme, _, value = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        raise OAuthError(400, "invalid_request", "client_id and client_secret are missing.")
    with _refused_as(401, "invalid_client"):
        name, secret = _basic(value)
        return unquote(name), unquote(secret)


def _exchanged(now: _Now, form: Mapping[str, str]) -> tuple[str, int]:
    kind = form.get("subject_token_type")
    if kind not in (_ACCESS_TOKEN, _JWT):
        raise OAuthError(400, "invalid_request", f"subject_token_type is {kind!r}.")
    with _refused_as(400, "invalid_grant"):
        verified = now.tokens.verify(form.get("subject_token", ""))
    name = str(verified.caller.name)
    return now.tokens.sign(name, None if name in now.rules.roles_of else verified)


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
