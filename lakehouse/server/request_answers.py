"""From a request to its answer: who asks, whether they may, what they get, and a note of it."""

from __future__ import annotations

import time
from asyncio import get_running_loop, shield, wrap_future
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TypeVar
from urllib.parse import unquote_plus

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from lakehouse.catalog.commit_outcome import before_the_swap
from lakehouse.errors import InvalidIdentifierError
from lakehouse.server.access.asked_privileges import check_asks
from lakehouse.server.access.doorkeeper import basic_secret
from lakehouse.server.access.privileges import ANYONE, Caller
from lakehouse.server.error_answers import HttpError, error_answer
from lakehouse.server.http_messages import Answer, Call
from lakehouse.server.memory_bounds import MemoryBounds
from lakehouse.server.repeated_requests import RepeatedRequests
from lakehouse.server.rest_operation import Operation, Served
from lakehouse.server.watching.access_log import log_request
from lakehouse.server.wire.known_targets import KnownTargets, decoded_names
from lakehouse.server.wire.large_bodies import PART_BYTES, LargeAnswers, RequestBodies, may_be_large
from lakehouse.spec.identifier import dotted

T = TypeVar("T")
_THREADS, _WAITING_THREADS = 32, 256
_SCRIPTED = frozenset({"cors", "same-origin"})
_TAKES_MORE = frozenset({"origin", "sec-fetch-mode", "content-length", "transfer-encoding"})
"""Headers of requests that are looked at more closely."""
_CLIENT_LEFT = 499
"""Counted for a request whose client left before it was there."""


class RequestAnswers:
    """Answers requests by operations, in threads.

    Args:
        served: what the operations work on.
        bounds: of what they are sent, and answer.
    """

    def __init__(self, served: Served, bounds: MemoryBounds) -> None:
        self._served = served
        self._bodies, self._answers = RequestBodies(bounds.bodies), LargeAnswers(bounds.answers)
        self._repeated = RepeatedRequests()
        self._known_targets = KnownTargets()
        self._threads = ThreadPoolExecutor(_THREADS, "lakehouse-answers")
        self._waiting = ThreadPoolExecutor(_WAITING_THREADS, "lakehouse-waiting")

    def endpoint(self, operation: Operation) -> Callable[[Request], Awaitable[Response]]:
        """What a route calls."""

        async def endpoint(request: Request) -> Response:
            return await self._answer(operation, request)

        if operation.at_once is not None:
            self._known_targets.add(operation)
        return endpoint

    def at_once(
        self, path: bytes, query: bytes, headers: Sequence[tuple[bytes, bytes]]
    ) -> Answer | None:
        """The answer to a GET without a body, where that needs no waiting; None where it does.

        Most requests ask for a table that is in memory. Without a route, a thread and what these
        make of a request, they take two thirds of the processor's time.

        Args:
            path: as it was sent.
            query: likewise.
            headers: names in lower case.
        """
        began, at_ms = time.perf_counter(), self._served.environment.now_ms()
        try:
            target = self._known_targets.find(path, query)
        except InvalidIdentifierError:  # the handler finds it again, and says what is wrong
            return None
        if target is None or target.operation.at_once is None:
            return None
        named = {
            key.decode("latin-1"): value.decode("latin-1") for key, value in reversed([*headers])
        }
        caller = self._caller_at_once(target.operation, named)
        if caller is None or not _TAKES_MORE.isdisjoint(named):
            return None
        operation, call = target.operation, Call(target.names, target.query, named)
        names: list[str] = []
        try:
            answer = self._run(target.operation.at_once, operation, call, caller, names)
        # this, too
        except Exception:  # noqa: BLE001
            return None
        if answer is None or len(answer.body) > PART_BYTES:
            return None
        self._note(operation, caller, names, answer.status, began, at_ms)
        return answer

    def _caller_at_once(self, operation: Operation, headers: Mapping[str, str]) -> Caller | None:
        doorkeeper = self._served.doorkeeper
        if doorkeeper is None or operation.for_anybody:
            return ANYONE
        return doorkeeper.remembered(headers.get("authorization"))

    async def _answer(self, operation: Operation, request: Request) -> Response:
        began, at_ms = time.perf_counter(), self._served.environment.now_ms()
        status, caller = _CLIENT_LEFT, ANYONE
        names = [unquote_plus(param) for param in request.path_params.values()]
        is_read = False
        try:
            _check_not_scripted(request)
            caller = await self._caller(operation, request)
            # of callers that are not known nothing more is read
            async with self._bodies.body(request, operation.body_max) as body:
                is_read = True
                parts = decoded_names(request.path_params)
                call = Call(parts, dict(request.query_params), dict(request.headers), body)
                at_once_answer: Answer | None = None
                if operation.secret is not None:
                    await self._check_secret(operation.secret(call), request)
                if operation.at_once is not None:
                    at_once_answer = self._run(operation.at_once, operation, call, caller, names)
                answer = at_once_answer or await self._in_thread(operation, call, caller, names)
            if not operation.changes:  # the outcome of a change is sent in any case
                self._answers.check(answer.body)
            status = answer.status
        except ClientDisconnect:
            raise
        # every error has an answer, and none may end the server
        except Exception as error:  # noqa: BLE001
            changes = operation.changes and is_read
            answer = _with_challenge(operation, error_answer(error, changes=changes))
            if not is_read and may_be_large(request):  # the rest of it is not read: no next request
                answer = replace(answer, headers={**answer.headers, "Connection": "close"})
            status = answer.status
            _forget_frames(error)
        finally:
            siblings = self._served.siblings
            if siblings is None or not siblings.is_relayed(request.headers):
                self._note(operation, caller, names, status, began, at_ms)
        return response(answer, self._answers)

    def _note(
        self,
        operation: Operation,
        caller: Caller,
        names: list[str],
        status: int,
        began: float,
        at_ms: int,
    ) -> None:
        seconds = time.perf_counter() - began
        self._served.meters.answered(operation.endpoint, status, seconds)
        log_request(
            at_ms=at_ms,
            principal=caller.name,
            operation=operation.endpoint,
            names=tuple(names),
            status=status,
            seconds=seconds,
        )

    async def _caller(self, operation: Operation, request: Request) -> Caller:
        caller = self._caller_at_once(operation, request.headers)
        doorkeeper = self._served.doorkeeper
        if caller is not None or doorkeeper is None:
            return caller or ANYONE
        authorization = request.headers.get("authorization")
        await self._check_secret(basic_secret(authorization), request)
        return await get_running_loop().run_in_executor(
            self._threads, doorkeeper.caller, authorization
        )

    async def _check_secret(self, credentials: tuple[str, str] | None, request: Request) -> None:
        """Have a secret compared that is not known, which takes no thread meanwhile."""
        doorkeeper = self._served.doorkeeper
        if doorkeeper is None or credentials is None:
            return
        checked = doorkeeper.check(*credentials, request.client.host if request.client else "")
        if checked is not None:
            await shield(wrap_future(checked))  # others may wait for the same one

    async def _in_thread(
        self, operation: Operation, call: Call, caller: Caller, names: list[str]
    ) -> Answer:
        once: Callable[[Served, Call], Answer] = partial(self._repeated.answer, operation)
        threads = self._waiting if operation.waits else self._threads
        return await get_running_loop().run_in_executor(
            threads, self._run, once, operation, call, caller, names
        )

    def _run(
        self,
        run: Callable[[Served, Call], T],
        operation: Operation,
        call: Call,
        caller: Caller,
        names: list[str],
    ) -> T:
        """What `run` answers, once the caller may have it; notes what it is about."""
        served = self._served
        if not operation.for_anybody:
            with before_the_swap():
                asks = operation.asks(call)
                names[:] = dict.fromkeys(dotted(ask.path) for ask in asks)
                if caller is not ANYONE:
                    check_asks(caller, asks)
                    served = served.for_caller(caller)
        return run(served, call)


def _forget_frames(error: BaseException | None) -> None:
    """Let go of what a failed request had in memory.

    Its frames have the error, by the thread's future, and the error has them: they would stay
    until Python looks for cycles.
    """
    while error is not None:
        error.with_traceback(None)
        error = error.__cause__ or error.__context__


def response(answer: Answer, answers: LargeAnswers | None = None) -> Response:
    """As Starlette sends it; a large one in parts."""
    headers = dict(answer.headers)
    if answer.body:
        headers["Content-Type"] = answer.content_type
    if answers is None:
        return Response(answer.body, answer.status, headers)
    return answers.response(answer.body, answer.status, headers)


def _check_not_scripted(request: Request) -> None:
    """Raise HttpError, 403, for what the script or the form of a web page sends.

    A browser adds the name and secret that it knows to requests of any page, and reaches servers
    on its own machine. Browsers may open our pages; nothing else here is for them.
    """
    headers = request.headers
    if "origin" in headers or headers.get("sec-fetch-mode") in _SCRIPTED:
        raise HttpError(403, "ForbiddenException", "Web pages may not send requests here.")


def _with_challenge(operation: Operation, answer: Answer) -> Answer:
    """A refusal says what to bring: browsers a name and a secret, programs a token."""
    if answer.status != 401:
        return answer
    scheme = "Bearer" if operation.root else "Basic"
    headers = {**answer.headers, "WWW-Authenticate": f'{scheme} realm="lakehouse"'}
    return Answer(answer.status, answer.body, headers, answer.content_type)
