"""Bearer tokens: signed ones of our own, and those of issuers that the rules name (RFC 7519)."""

from __future__ import annotations

import json
import secrets
import threading
import time
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from joserfc import jws, jwt
from joserfc.errors import ExpiredTokenError, InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet, OctKey

from lakehouse.environment import Environment
from lakehouse.errors import StorageError
from lakehouse.server.access.principals_file import Issuer, Rules
from lakehouse.server.access.privileges import Caller
from lakehouse.server.error_answers import HttpError

OWN_ISSUER = "lakehouse"
_OWN_ALGORITHMS = ["HS256"]
_PUBLIC_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"]
_PUBLIC_ALGORITHMS += ["ES256", "ES384", "ES512", "EdDSA", "Ed25519"]
_TOKEN_CHARACTERS_MAX = 16_384
_LEEWAY_SECONDS = 30
_KEYS_SECONDS, _AGAIN_SECONDS, _FETCH_SECONDS = 900.0, 30.0, 10.0
_KEYS_BYTES_MAX = 1024 * 1024


def not_authorized(message: str) -> HttpError:
    """401."""
    return HttpError(401, "NotAuthorizedException", message)


@dataclass(frozen=True, slots=True)
class Verified:
    """A token that holds.

    Attributes:
        caller: whom it names.
        roles: the names of theirs that an issuer gave; empty for our own principals.
        until_ms: when it ends, milliseconds since the epoch.
    """

    caller: Caller
    roles: tuple[str, ...]
    until_ms: int


class BearerTokens:
    """Signs tokens and reads them.

    Args:
        rules: principals, roles and issuers.
        audience: of our own tokens: the catalog.
        environment: clock and ids.
    """

    def __init__(self, rules: Rules, audience: str, environment: Environment) -> None:
        self._rules, self._audience, self._environment = rules, audience, environment
        self._key = OctKey.import_key(rules.token_key or secrets.token_bytes(64))
        self._keys = {name: _PublicKeys(issuer.jwks) for name, issuer in rules.issuers.items()}

    def sign(self, name: str, foreign: Verified | None = None) -> tuple[str, int]:
        """A token for a principal, and the seconds that it is good for: `rules.token_seconds`.

        Args:
            name: of the principal.
            foreign: what an issuer says of one that is not our own: its roles, and for how long.
        """
        now = self._environment.now_ms() // 1000
        until = now + self._rules.token_seconds
        claims = {
            "iss": OWN_ISSUER,
            "aud": self._audience,
            "sub": name,
            "iat": now,
            "jti": str(self._environment.new_uuid()),
        }
        if foreign is not None:
            claims["roles"] = list(foreign.roles)
            until = min(until, foreign.until_ms // 1000)
        claims["exp"] = until
        return jwt.encode({"alg": _OWN_ALGORITHMS[0]}, claims, self._key), until - now

    def verify(self, token: str) -> Verified:
        """Whom a token names.

        Raises HttpError: 401, or 419 where it was good once.
        """
        if len(token) > _TOKEN_CHARACTERS_MAX:
            raise not_authorized("The token is too long.")
        try:
            issuer = _issuer_of(token)
            if issuer == OWN_ISSUER:
                return self._of_this_server(token)
            rules = self._rules.issuers.get(issuer)
            if rules is None:
                raise not_authorized("The token is of an issuer that is not known here.")
            return self._of_issuer(token, issuer, rules)
        except ExpiredTokenError as error:
            raise HttpError(
                419, "AuthenticationTimeoutException", "The token has expired. Ask for a new one."
            ) from error
        except (JoseError, ValueError, TypeError, KeyError, RecursionError) as error:
            # a caller who cannot sign a token does not learn what is wrong with it
            raise not_authorized("The token is not valid.") from error

    def _of_this_server(self, token: str) -> Verified:
        claims = jwt.decode(token, self._key, algorithms=_OWN_ALGORITHMS).claims
        self._check(claims, OWN_ISSUER, self._audience)
        name = str(claims["sub"])
        if name in self._rules.roles_of:
            return self._verified(name, (), claims)
        return self._verified(name, claims["roles"], claims)

    def _of_issuer(self, token: str, name: str, issuer: Issuer) -> Verified:
        keys = self._keys[name]
        try:
            decoded = jwt.decode(token, keys.current(), algorithms=_PUBLIC_ALGORITHMS)
        except InvalidKeyIdError:  # keys were rotated
            decoded = jwt.decode(token, keys.newer(), algorithms=_PUBLIC_ALGORITHMS)
        claims = decoded.claims
        self._check(claims, name, issuer.audience)
        principal = claims[issuer.name]
        if not isinstance(principal, str) or principal in self._rules.roles_of:
            raise ValueError(f"{issuer.name} is no name, or that of one of our own principals")
        roles = claims.get(issuer.roles, [])
        return self._verified(principal, roles.split() if isinstance(roles, str) else roles, claims)

    def _verified(self, name: str, claimed: Iterable[object], claims: dict[str, Any]) -> Verified:
        roles = tuple(str(role) for role in claimed)
        caller = self._rules.caller(name, roles or self._rules.roles_of.get(name, ()))
        return Verified(caller, roles, int(claims["exp"]) * 1000)

    def _check(self, claims: dict[str, Any], issuer: str, audience: str) -> None:
        jwt.JWTClaimsRegistry(
            now=self._environment.now_ms() // 1000,
            leeway=_LEEWAY_SECONDS if issuer != OWN_ISSUER else 0,
            iss={"essential": True, "value": issuer},
            aud={"essential": True, "value": audience},
            exp={"essential": True},
        ).validate(claims)


def _issuer_of(token: str) -> str:
    """What a token says of itself: which key to ask."""
    claims = json.loads(jws.extract_compact(token.encode()).payload)
    return str(claims["iss"])


class _PublicKeys:
    """The keys of an issuer, fetched again from time to time."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._keys: KeySet | None = None
        self._fetched = float("-inf")

    def current(self) -> KeySet:
        """At most some minutes old."""
        return self._younger_than(_KEYS_SECONDS)

    def newer(self) -> KeySet:
        """Fetched again, unless that was just now."""
        return self._younger_than(_AGAIN_SECONDS)

    def _younger_than(self, seconds: float) -> KeySet:
        with self._lock:
            now = time.monotonic()
            if self._keys is None or now - self._fetched > seconds:
                self._keys, self._fetched = self._fetch(), now
            return self._keys

    def _fetch(self) -> KeySet:
        try:
            # the address is of the operator's own file
            with urllib.request.urlopen(self._url, timeout=_FETCH_SECONDS) as answer:  # noqa: S310
                return KeySet.import_key_set(json.loads(answer.read(_KEYS_BYTES_MAX)))
        except (OSError, ValueError, JoseError) as error:
            raise StorageError(
                f"The keys of the tokens' issuer cannot be had from {self._url}: {error}",
                retryable=True,
            ) from error
