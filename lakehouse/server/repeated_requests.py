"""Requests that are sent again take effect once (REST catalog: Idempotency-Key).

The catalog keeps what a request did together with its key (see `Catalog.during`). When it is sent
again it is answered, not run: a refusal with the words of the first time, a success with
what is there by now. What ended in 5xx is not kept: the next one finds out.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import replace
from uuid import UUID, uuid5

from lakehouse.catalog.catalog_protocol import AnsweredRequest, Request, RequestLog
from lakehouse.errors import InvalidInputError, RequestRepeatedError
from lakehouse.server.access.privileges import Caller
from lakehouse.server.error_answers import HttpError, error_answer
from lakehouse.server.http_messages import Answer, Call
from lakehouse.server.rest_operation import Operation, Served

LIFETIME = "PT1H"
"""For how long a request can be sent again; clients get it in the configuration."""
_KEPT_MS = 2 * 3_600_000
_SWEEP_EVERY_MS = 600_000
_STRIPES = 16_384
_READING = frozenset({"GET", "HEAD"})
_NOT_FINAL = frozenset({401, 403, 408, 419, 429})


class RepeatedRequests:
    """Runs operations, each once for its key."""

    def __init__(self) -> None:
        self._locks = [threading.Lock() for _ in range(_STRIPES)]
        self._swept_ms = 0

    def answer(self, operation: Operation, served: Served, call: Call) -> Answer:
        """The answer to a request; of one that was answered before, without running it again."""
        text = call.headers.get("idempotency-key")
        if text is None or operation.method in _READING:
            return operation.run(served, call)
        key, log = _key(text, served.caller), served.catalog.requests
        if log is None or not operation.changes:
            return operation.run(served, call)
        now_ms = served.environment.now_ms()
        request = Request(key, _fingerprint(operation, call), now_ms)
        with self._locks[hash(request.key) % _STRIPES]:
            self._sweep(log, now_ms)
            earlier = None if operation.finds_keys else log.find(request.key)
            if earlier is None:
                try:
                    return _first(operation, served, call, log, request)
                except RequestRepeatedError:  # another server was asked, too
                    earlier = log.find(request.key)
        return _again(operation, served, call, request, earlier)

    def _sweep(self, log: RequestLog, now_ms: int) -> None:
        if now_ms - self._swept_ms > _SWEEP_EVERY_MS:
            self._swept_ms = now_ms
            log.forget(now_ms - _KEPT_MS)


def _first(
    operation: Operation, served: Served, call: Call, log: RequestLog, request: Request
) -> Answer:
    try:
        return operation.run(served.during(request), call)
    except RequestRepeatedError:
        raise
    # what is refused for good is refused again, whatever it was
    except Exception as error:  # noqa: BLE001
        answer = error_answer(error, changes=True)
        if 400 <= answer.status < 500 and answer.status not in _NOT_FINAL:
            log.refuse(request, answer.status, answer.body.decode())
        return answer


def _again(
    operation: Operation,
    served: Served,
    call: Call,
    request: Request,
    earlier: AnsweredRequest | None,
) -> Answer:
    if earlier is None or earlier.fingerprint != request.fingerprint:
        raise HttpError(
            422,
            "UnprocessableEntityException",
            "This Idempotency-Key was given to another request. Choose a new one.",
        )
    if earlier.status is not None:
        return Answer(earlier.status, (earlier.answer or "").encode())
    return operation.again(served, replace(call, earlier_answer=earlier.answer))


def _key(text: str, caller: Caller) -> str:
    """Each principal has keys of its own. Raises InvalidInputError: the text is no UUID."""
    try:
        key = UUID(text)
    except ValueError as error:
        raise _no_key(text) from error
    if str(key) != text.lower():  # in one of the other forms that Python reads
        raise _no_key(text)
    return str(key if caller.name is None else uuid5(key, caller.name))


def _no_key(text: str) -> InvalidInputError:
    return InvalidInputError(f"Idempotency-Key must be a UUID, not {text[:40]!r}.")


def _fingerprint(operation: Operation, call: Call) -> str:
    parts = [operation.method, operation.path]
    parts += [f"{key}={value}" for key, value in sorted({**call.names, **call.query}.items())]
    digest = hashlib.sha256("\n".join(parts).encode())
    digest.update(b"\n\n")
    digest.update(call.body)
    return digest.hexdigest()
