"""Secrets of principals as they are kept: hashed by scrypt (RFC 7914), each with its own salt."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import threading
from dataclasses import dataclass

_N, _R, _P = 2**14, 8, 1
_N_MAX = 2**20
_BYTES = 32
_turn = threading.Lock()
"""One at a time: each takes 16 MiB and tens of milliseconds, and anybody may ask."""


@dataclass(frozen=True, slots=True)
class HashedSecret:
    """What a secret is compared with.

    Attributes:
        n: cost in memory and time.
        salt: random.
        key: derived from the secret.
    """

    n: int
    salt: bytes
    key: bytes

    @classmethod
    def of(cls, secret: str) -> HashedSecret:
        """Hash a secret.

        >>> HashedSecret.of("one").matches("one"), HashedSecret.of("one").matches("other")
        (True, False)
        """
        salt = secrets.token_bytes(16)
        return cls(_N, salt, _derived(secret, _N, salt))

    @classmethod
    def parse(cls, text: object) -> HashedSecret:
        """Read what `str` gives. Raises ValueError, which does not quote it."""
        try:
            scheme, n, salt, key = str(text).split("$")
            found = cls(int(n), _decoded(salt), _decoded(key))
        except (ValueError, binascii.Error):
            scheme, found = "", cls(0, b"", b"")
        if scheme != "scrypt" or not 2 <= found.n <= _N_MAX or found.n & (found.n - 1):
            raise ValueError("no secret as `lakehouse new-principal` prints it")
        return found

    def matches(self, secret: str) -> bool:
        """Whether it is of this secret, in a time that tells nothing of it."""
        return hmac.compare_digest(_derived(secret, self.n, self.salt), self.key)

    def __str__(self) -> str:
        return f"scrypt${self.n}${_encoded(self.salt)}${_encoded(self.key)}"

    def __repr__(self) -> str:
        return "HashedSecret(***)"


def new_secret() -> str:
    """A random one, of 256 bits."""
    return secrets.token_urlsafe(_BYTES)


def _derived(secret: str, n: int, salt: bytes) -> bytes:
    with _turn:
        return hashlib.scrypt(
            secret.encode(), salt=salt, n=n, r=_R, p=_P, maxmem=256 * n * _R, dklen=_BYTES
        )


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()


def _decoded(text: str) -> bytes:
    return base64.b64decode(text, altchars=b"-_", validate=True)
