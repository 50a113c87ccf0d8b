"""Health, metrics, and the pages for people."""

from __future__ import annotations

import logging

from lakehouse.errors import LakehouseError
from lakehouse.server.access.asked_privileges import nothing, on_table
from lakehouse.server.access.privileges import Privilege
from lakehouse.server.http_messages import Answer, Call, json_answer
from lakehouse.server.meters import CONTENT_TYPE
from lakehouse.server.rest_operation import Operation, Served
from lakehouse.server.watching.catalog_pages import catalog_page, style_sheet, table_page

log = logging.getLogger(__name__)


def health(served: Served, _call: Call) -> Answer:
    """200 where the catalog answers; 503 where it does not, and the log says why."""
    try:
        served.catalog.namespace_exists(("health",))
    except LakehouseError:
        log.exception("The catalog does not answer.")
        return json_answer({"status": "the catalog does not answer"}, 503, {"Retry-After": "5"})
    return json_answer({"status": "ok"})


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
        "/tables/{namespace}/{table}",
        table_page,
        root="",
        listed=False,
        asks=on_table(Privilege.READ),
    ),
)
