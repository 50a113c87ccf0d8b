"""Health, metrics, and the pages for people."""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from weakref import WeakKeyDictionary

from lakehouse.catalog.catalog_protocol import Catalog
from lakehouse.errors import LakehouseError
from lakehouse.server.access.asked_privileges import nothing, on_table, on_view
from lakehouse.server.access.privileges import Privilege
from lakehouse.server.http_messages import Answer, Call, json_answer
from lakehouse.server.meters import CONTENT_TYPE
from lakehouse.server.rest_operation import Operation, Served
from lakehouse.server.watching.catalog_pages import catalog_page
from lakehouse.server.watching.page_rendering import style_sheet
from lakehouse.server.watching.table_pages import (
    lineage_page,
    sample_page,
    schema_page,
    snapshots_page,
    table_page,
)
from lakehouse.server.watching.view_pages import view_page

log = logging.getLogger(__name__)


_PATIENCE_S = 2
_asking = ThreadPoolExecutor(1, thread_name_prefix="lakehouse-health")
_asked: WeakKeyDictionary[Catalog, Future[bool]] = WeakKeyDictionary()
"""Catalogs that have not answered yet: each is asked once at a time, however long it takes."""


def health(served: Served, _call: Call) -> Answer:
    """200 where the catalog answers within two seconds; else 503, and the log says why."""
    question = _asked.get(served.catalog)
    if question is None:
        question = _asking.submit(served.catalog.namespace_exists, ("health",))
        _asked[served.catalog] = question
    try:
        question.result(_PATIENCE_S)
    except TimeoutError:
        log.warning("The catalog has not answered for %s seconds.", _PATIENCE_S)
        return _unhealthy()
    except LakehouseError:
        log.exception("The catalog does not answer.")
        return _unhealthy()
    finally:
        if question.done():
            _asked.pop(served.catalog, None)
    return json_answer({"status": "ok"})


def _unhealthy() -> Answer:
    return json_answer({"status": "the catalog does not answer"}, 503, {"Retry-After": "5"})


def metrics(served: Served, _call: Call) -> Answer:
    """What was counted, as Prometheus reads it."""
    return Answer(200, served.meters.text(), content_type=CONTENT_TYPE)


WATCH_OPERATIONS = (
    Operation("GET", "/health", health, root="", listed=False, for_anybody=True),
    Operation("GET", "/metrics", metrics, root="", listed=False, asks=nothing),
    Operation("GET", "/", catalog_page, root="", listed=False, asks=nothing),
    Operation("GET", "/style.css", style_sheet, root="", listed=False, for_anybody=True),
    Operation(
        "GET",
        "/views/{namespace}/{view}",
        view_page,
        root="",
        listed=False,
        asks=on_view(Privilege.READ),
    ),
    *(
        Operation(
            "GET",
            f"/tables/{{namespace}}/{{table}}{ending}",
            page,
            root="",
            listed=False,
            asks=on_table(Privilege.READ),
        )
        for ending, page in (
            ("", table_page),
            ("/snapshots", snapshots_page),
            ("/schema", schema_page),
            ("/sample", sample_page),
            ("/lineage", lineage_page),
        )
    ),
)
