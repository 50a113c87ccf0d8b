"""Secrets of principals as they are kept: hashed by scrypt (RFC 7914), each with its own salt."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

_N, _R, _P = 2**14, 8, 1
_N_MAX = 2**20
_BYTES = 32
_WAITING_MAX = 16
_turn = threading.Lock()
"""One at a time: each takes 16 MiB and tens of milliseconds, and any client can start one."""


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
            hashed = cls(int(n), _decoded(salt), _decoded(key))
        except (ValueError, binascii.Error):
            scheme, hashed = "", cls(0, b"", b"")
        if scheme != "scrypt" or not 2 <= hashed.n <= _N_MAX or hashed.n & (hashed.n - 1):
            raise ValueError("no secret as `lakehouse new-principal` prints it")
        return hashed

    def matches(self, secret: str) -> bool:
        """Whether it is of this secret, in a time that tells nothing of it."""
        return hmac.compare_digest(_derived(secret, self.n, self.salt), self.key)

    def __str__(self) -> str:
        return f"scrypt${self.n}${_encoded(self.salt)}${_encoded(self.key)}"

    def __repr__(self) -> str:
        return "HashedSecret(***)"


@dataclass(eq=False, slots=True)
class _Check:
    compare: Callable[[], bool]
    result: Future[bool] = field(default_factory=Future)

    def run(self) -> None:
        try:
            self.result.set_result(self.compare())
        # whoever waits gets it
        except BaseException as error:  # noqa: BLE001
            self.result.set_exception(error)


_Lane = OrderedDict[bytes, _Check]


class SecretChecks:
    """Compares secrets one at a time: of each peer in turn, and of it of each name in turn.

    So who guesses waits for itself. Safe between threads.

    Args:
        turn: held while one is compared.
    """

    def __init__(self, turn: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._turn = turn
        self._thread = ThreadPoolExecutor(1, "lakehouse-secrets")
        self._lock = threading.Lock()
        self._lanes: OrderedDict[str, OrderedDict[str | None, _Lane]] = OrderedDict()
        self._current: tuple[tuple[object, ...], _Check] | None = None

    def submit(
        self, peer: str, name: str | None, what: bytes, compare: Callable[[], bool]
    ) -> Future[bool] | None:
        """Have a secret compared; None: as many others of this peer and name wait as may.

        Args:
            peer: from where it came.
            name: of the principal; None: no principal has it.
            what: tells name and secret from all others; several with the same one wait for one.
            compare: takes long.
        """
        with self._lock:
            if self._current is not None and self._current[0] == (peer, name, what):
                return self._current[1].result
            lane = self._lanes.setdefault(peer, OrderedDict()).setdefault(name, OrderedDict())
            if what not in lane:
                if len(lane) >= _WAITING_MAX:
                    return None
                lane[what] = _Check(compare)
            result = lane[what].result
            if self._current is None:
                self._begin()
            return result

    def _begin(self) -> None:
        """Begin the next one. The lock is held."""
        self._current = None
        if not self._lanes:
            return
        peer, lanes = self._lanes.popitem(last=False)
        name, lane = lanes.popitem(last=False)
        what, check = lane.popitem(last=False)
        if lane:
            lanes[name] = lane
        if lanes:
            self._lanes[peer] = lanes
        self._current = (peer, name, what), check
        self._thread.submit(self._run, check)

    def _run(self, check: _Check) -> None:
        with self._turn():
            check.run()
        with self._lock:
            self._begin()


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
