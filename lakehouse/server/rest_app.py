"""The operations as an ASGI application."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from lakehouse.catalog.catalog_protocol import Catalog
from lakehouse.catalog.redaction import hide_in_urls
from lakehouse.errors import InvalidInputError
from lakehouse.lake import Lakehouse
from lakehouse.server.access.asked_privileges import nothing
from lakehouse.server.access.doorkeeper import Doorkeeper
from lakehouse.server.access.principals_file import Rules
from lakehouse.server.delegation.file_access import AccessRules, FileAccess
from lakehouse.server.error_answers import HttpError, error_answer
from lakehouse.server.http_messages import Answer, Call, json_answer
from lakehouse.server.memory_bounds import DEFAULT_BOUNDS, MemoryBounds
from lakehouse.server.operations.access_operations import TOKEN_OPERATIONS, access_operations
from lakehouse.server.operations.namespace_operations import NAMESPACE_OPERATIONS
from lakehouse.server.operations.plan_bounds import DEFAULT_PLAN_BOUNDS, PlanBounds
from lakehouse.server.operations.report_operations import REPORT_OPERATIONS
from lakehouse.server.operations.scan_operations import ScanPlanning
from lakehouse.server.operations.semantics_operations import SEMANTICS_OPERATIONS
from lakehouse.server.operations.table_operations import (
    APPEND_OPERATIONS,
    TABLE_OPERATIONS,
    TRANSACTION_OPERATIONS,
)
from lakehouse.server.operations.view_operations import VIEW_OPERATIONS
from lakehouse.server.repeated_requests import LIFETIME
from lakehouse.server.request_answers import RequestAnswers, response
from lakehouse.server.rest_operation import Operation, Served
from lakehouse.server.sibling_workers import Siblings
from lakehouse.server.watching.watch_operations import WATCH_OPERATIONS
from lakehouse.server.wire.known_targets import UndecodedPaths
from lakehouse.spec.identifier import full_uri
from lakehouse.storage.bucket_clients import S3_SCHEMES
from lakehouse.storage.location import parse
from lakehouse.storage.s3_client import s3_client_settings


def rest_app(
    lake: Lakehouse,
    *,
    config: Mapping[str, str] | None = None,
    rules: Rules | None = None,
    access: AccessRules | None = None,
    memory: MemoryBounds | None = None,
    plans: PlanBounds = DEFAULT_PLAN_BOUNDS,
    dagster_url: str = "",
    siblings: Siblings | None = None,
) -> RestApp:
    """An ASGI application that serves a catalog (REST catalog: rest-catalog-open-api.yaml).

    Args:
        lake: the catalog.
        config: defaults for clients that do not set them, such as `s3.endpoint` (REST catalog:
            CatalogConfig.defaults), over what the server's own storage has; no secrets.
        rules: who may do what; None: without authentication.
        access: which access to files is handed out; None: clients have their own.
        memory: what is kept in memory, at most; None: as `DEFAULT_BOUNDS` has it. Given, it
            bounds what the catalogs of this process share, too.
        plans: what plans of scans may ask for, and take.
        dagster_url: where Dagster's pages are, for links of ours to assets and runs.
        siblings: other processes of the same server; None: there are none.

    Raises:
        InvalidInputError: `dagster_url` is not the address of a server.
    """
    doorkeeper = None
    if rules is not None:
        turn = nullcontext if siblings is None else partial(siblings.turn, "secrets")
        doorkeeper = Doorkeeper(rules, lake.name, lake.environment, turn)
    settings = {**_store_of(lake.catalog), **(config or {})}
    properties = {**lake.catalog.properties, **settings}
    files = None if access is None else FileAccess(properties, access, lake.environment)
    bounds = memory or DEFAULT_BOUNDS
    if memory is not None:
        memory.bound_process()
    served = Served.of(lake, doorkeeper, files, bounds, _page_url(dagster_url), siblings)
    operations = operations_of(lake.catalog, access, bounds, plans)
    answers = RequestAnswers(served, bounds)
    configuration = Operation(
        "GET", "/config", _configuration(operations, settings), listed=False, asks=nothing
    )
    # routes are tried one after the other: the most frequent one comes first
    often = sorted(
        operations, key=lambda operation: operation.path != "/namespaces/{namespace}/tables/{table}"
    )
    routes = [
        Route(
            f"{operation.root}{operation.path}",
            answers.endpoint(operation),
            methods=[operation.method],
        )
        for operation in (*often, configuration, *TOKEN_OPERATIONS, *WATCH_OPERATIONS)
    ]
    routed = Starlette(routes=routes, exception_handlers={HTTPException: _no_such_route})
    return RestApp(UndecodedPaths(routed), answers, doorkeeper)


class RestApp:
    """The operations as an ASGI application.

    Args:
        routed: what finds the operation of a request.
        answers: what answers it.
        doorkeeper: authenticates callers; None: without authentication.
    """

    def __init__(
        self, routed: ASGIApp, answers: RequestAnswers, doorkeeper: Doorkeeper | None = None
    ) -> None:
        self._routed, self._answers, self._doorkeeper = routed, answers, doorkeeper

    def follow(self, rules: Rules) -> None:
        """From now on other rules hold. Raises InvalidInputError: there is no authentication."""
        if self._doorkeeper is None:
            raise InvalidInputError("The server was started without rules, and asks nobody.")
        self._doorkeeper.follow(rules)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        answer = None
        if scope["type"] == "http" and scope["method"] == "GET":
            target = scope.get("raw_path") or b"", scope["query_string"]
            answer = self._answers.at_once(*target, scope["headers"])
        app = self._routed if answer is None else response(answer)
        await app(scope, receive, send)


def operations_of(
    catalog: Catalog,
    access: AccessRules | None = None,
    memory: MemoryBounds = DEFAULT_BOUNDS,
    plans: PlanBounds = DEFAULT_PLAN_BOUNDS,
) -> tuple[Operation, ...]:
    """Every operation of the specification, and ours; those are listed that the catalog has."""
    together = [
        replace(operation, listed=catalog.commits_together) for operation in TRANSACTION_OPERATIONS
    ]
    planning = ScanPlanning(memory.plans, plans).operations()
    # an append is recognised by the key of its request
    appends = [
        replace(operation, listed=catalog.requests is not None) for operation in APPEND_OPERATIONS
    ]
    served = (*NAMESPACE_OPERATIONS, *TABLE_OPERATIONS, *VIEW_OPERATIONS, *REPORT_OPERATIONS)
    others = (*access_operations(access), *SEMANTICS_OPERATIONS)
    return (*served, *planning, *together, *appends, *others)


def _page_url(text: str) -> str:
    """An address that pages may link to, without a slash at its end. Raises InvalidInputError."""
    parts = urlsplit(text)
    if text and (parts.scheme not in ("http", "https") or not parts.hostname or parts.username):
        raise InvalidInputError(
            f"Dagster's address is http://HOST or https://HOST, without a password; not "
            f"{hide_in_urls(text)!r}."
        )
    return text.rstrip("/")


def _store_of(catalog: Catalog) -> dict[str, str]:
    """Where the store of a catalog is, for clients that do not know it."""
    is_on_s3 = parse(catalog.warehouse).scheme in S3_SCHEMES
    return s3_client_settings(catalog.properties, os.environ) if is_on_s3 else {}


def _configuration(
    operations: Sequence[Operation], settings: Mapping[str, str]
) -> Callable[[Served, Call], Answer]:
    endpoints = [operation.endpoint for operation in operations if operation.listed]

    def configuration(served: Served, call: Call) -> Answer:
        wanted = call.query.get("warehouse", "")
        if wanted not in ("", served.lake.name) and full_uri(wanted) != served.lake.warehouse:
            raise HttpError(404, "NoSuchWarehouseException", f"No warehouse {wanted!r} is served.")
        document = {
            "defaults": dict(settings),
            "overrides": {"namespace-separator": "%1F"},
            "endpoints": endpoints,
        }
        if served.catalog.requests is not None:
            document["idempotency-key-lifetime"] = LIFETIME
        return json_answer(document)

    return configuration


async def _no_such_route(request: Request, error: Any) -> Response:
    refusal = HttpError(error.status_code, "BadRequestException", "There is no such operation.")
    answer = error_answer(refusal, changes=False)
    if answer.status == 405:
        answer = replace(answer, headers={**answer.headers, "Allow": _methods(request)})
    return response(answer)


def _methods(request: Request) -> str:
    """Those that the path of a request has (RFC 9110, 10.2.1)."""
    routes = [route for route in request.app.routes if isinstance(route, Route)]
    matching = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    return ", ".join(sorted({method for route in matching for method in route.methods or ()}))
