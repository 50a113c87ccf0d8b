"""The operations as an ASGI application."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from lakehouse.catalog.catalog_protocol import Catalog
from lakehouse.lake import Lakehouse
from lakehouse.server.error_answers import HttpError, error_answer
from lakehouse.server.http_messages import Answer, Call, json_answer
from lakehouse.server.operations.namespace_operations import NAMESPACE_OPERATIONS
from lakehouse.server.operations.report_operations import REPORT_OPERATIONS
from lakehouse.server.operations.scan_operations import ScanPlanning
from lakehouse.server.operations.table_operations import TABLE_OPERATIONS
from lakehouse.server.operations.transaction_operations import TRANSACTION_OPERATIONS
from lakehouse.server.operations.unserved_operations import UNSERVED_OPERATIONS
from lakehouse.server.operations.view_operations import VIEW_OPERATIONS
from lakehouse.server.repeated_requests import LIFETIME, RepeatedRequests
from lakehouse.server.rest_operation import Operation, Served
from lakehouse.server.watching.access_log import log_request
from lakehouse.server.watching.watch_operations import WATCH_OPERATIONS

log = logging.getLogger(__name__)

BODY_BYTES_MAX = 64 * 1024 * 1024
_THREADS = 32
_CLIENT_LEFT = 499
"""Counted for a request whose client left before it was there."""


def rest_app(lake: Lakehouse, *, config: Mapping[str, str] | None = None) -> Starlette:
    """An ASGI application that serves a catalog (REST catalog: rest-catalog-open-api.yaml).

    Args:
        lake: the catalog.
        config: what clients are told for every table, such as `s3.endpoint`; no secrets.
    """
    served = Served.of(lake, config or {})
    operations = operations_of(lake.catalog)
    repeated = RepeatedRequests()
    threads = CapacityLimiter(_THREADS)
    configuration = Operation("GET", "/config", _configuration(operations), listed=False)
    all_of_them = (configuration, *operations, *WATCH_OPERATIONS)
    routes = [_route(one, served, repeated, threads) for one in all_of_them]
    return Starlette(routes=routes, exception_handlers={HTTPException: _no_such_route})


def operations_of(catalog: Catalog) -> tuple[Operation, ...]:
    """Every operation of the specification; those are listed that the catalog has."""
    together = [replace(one, listed=catalog.commits_together) for one in TRANSACTION_OPERATIONS]
    planning = ScanPlanning().operations()
    served = (*NAMESPACE_OPERATIONS, *TABLE_OPERATIONS, *VIEW_OPERATIONS, *REPORT_OPERATIONS)
    return (*served, *planning, *together, *UNSERVED_OPERATIONS)


def _configuration(operations: Sequence[Operation]) -> Callable[[Served, Call], Answer]:
    endpoints = [one.endpoint for one in operations if one.listed]

    def configuration(served: Served, call: Call) -> Answer:
        wanted = call.query.get("warehouse", "")
        if wanted not in ("", served.lake.name, served.lake.warehouse):
            raise HttpError(404, "NoSuchWarehouseException", f"No warehouse {wanted!r} is served.")
        document = {
            "defaults": {},
            "overrides": {"namespace-separator": "%1F"},
            "endpoints": endpoints,
        }
        if served.catalog.requests is not None:
            document["idempotency-key-lifetime"] = LIFETIME
        return json_answer(document)

    return configuration


def _route(
    operation: Operation, served: Served, repeated: RepeatedRequests, threads: CapacityLimiter
) -> Route:
    async def endpoint(request: Request) -> Response:
        began, at_ms = time.perf_counter(), served.environment.now_ms()
        status = _CLIENT_LEFT
        try:
            call = Call(
                request.path_params,
                dict(request.query_params),
                dict(request.headers),
                await _body(request),
            )
            answer = await to_thread.run_sync(
                repeated.answer, operation, served, call, limiter=threads
            )
            status = answer.status
        except ClientDisconnect:
            raise
        # every error has an answer, and none may end the server
        except Exception as error:  # noqa: BLE001
            answer = error_answer(error, changes=operation.changes)
            status = answer.status
        finally:
            seconds = time.perf_counter() - began
            served.meters.answered(operation.endpoint, status, seconds)
            log_request(
                at_ms=at_ms,
                principal=None,
                operation=operation.endpoint,
                names=tuple(request.path_params.values()),
                status=status,
                seconds=seconds,
            )
        return _response(answer)

    return Route(f"{operation.root}{operation.path}", endpoint, methods=[operation.method])


async def _body(request: Request) -> bytes:
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > BODY_BYTES_MAX:
            raise HttpError(
                413, "BadRequestException", f"The body has more than {BODY_BYTES_MAX} bytes."
            )
        chunks.append(chunk)
    return b"".join(chunks)


def _response(answer: Answer) -> Response:
    headers = dict(answer.headers)
    if answer.body:
        headers["Content-Type"] = answer.content_type
    return Response(answer.body, answer.status, headers)


async def _no_such_route(_request: Request, error: Any) -> Response:
    return _response(
        error_answer(
            HttpError(error.status_code, "BadRequestException", "There is no such operation."),
            changes=False,
        )
    )
