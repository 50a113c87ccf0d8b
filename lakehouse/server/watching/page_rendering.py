"""Pages as HTML: templates whose values are text, links to tables, and to Dagster."""

from __future__ import annotations

import datetime as dt
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from lakehouse.maintenance.shown_plan import human_ms
from lakehouse.server.http_messages import SEPARATOR, Answer, Call
from lakehouse.server.rest_operation import Served
from lakehouse.spec.identifier import Identifier

_HEADERS = {
    # nothing is run, loaded from elsewhere, framed or kept
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def visible(value: Any) -> Any:
    """Text whose invisible characters are written out: they could turn a line around."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return "".join(
        character if character.isprintable() or character == "\n" else repr(character)[1:-1]
        for character in value
    )


_templates = Environment(
    loader=PackageLoader("lakehouse.server.watching"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=visible,
    trim_blocks=True,
    lstrip_blocks=True,
)


def html_page(template: str, served: Served, status: int = 200, **values: object) -> Answer:
    """An answer with a page, which names the catalog on top."""
    values = {"catalog": served.lake.name, "dagster": served.dagster_url, **values}
    text = _templates.get_template(template).render(values)
    return Answer(status, text.encode(), _HEADERS, "text/html; charset=utf-8")


def style_sheet(_served: Served, _call: Call) -> Answer:
    """The style of all pages."""
    text = _templates.get_template("style.css").render()
    return Answer(200, text.encode(), _HEADERS, "text/css; charset=utf-8")


def table_path(identifier: Identifier, page: str = "") -> str:
    """The path of a table's page."""
    namespace = quote(SEPARATOR.join(identifier.namespace), safe="")
    path = f"/tables/{namespace}/{quote(identifier.name, safe='')}"
    return f"{path}/{page}" if page else path


def view_path(identifier: Identifier) -> str:
    """The path of a view's page."""
    namespace = quote(SEPARATOR.join(identifier.namespace), safe="")
    return f"/views/{namespace}/{quote(identifier.name, safe='')}"


def dagster_asset(served: Served, key: str) -> str:
    """The page of an asset in Dagster, by its slash-separated key; empty: not configured."""
    return f"{served.dagster_url}/assets/{quote(key)}" if served.dagster_url and key else ""


def dagster_run(served: Served, run_id: str) -> str:
    """The page of a run in Dagster; empty: not configured."""
    return f"{served.dagster_url}/runs/{quote(run_id, safe='')}" if served.dagster_url else ""


def clock(timestamp_ms: int) -> str:
    """A time of the metadata in UTC, to the second."""
    try:
        at = dt.datetime.fromtimestamp(timestamp_ms / 1000, dt.UTC)
    except (ValueError, OverflowError, OSError):  # metadata of other writers may hold any number
        return f"{timestamp_ms} ms"
    return at.strftime("%Y-%m-%d %H:%M:%S")


def age(served: Served, timestamp_ms: int) -> str:
    """How long ago that was, such as `2d 3h ago`."""
    passed = served.environment.now_ms() - timestamp_ms
    return "just now" if passed < 1000 else f"{human_ms(passed)} ago"


def number(text: str | None) -> str:
    """A count of a snapshot's summary with separators: `1,234`; as it is where it is no number."""
    return f"{int(text):,}" if text and text.isdecimal() and len(text) < 20 else text or ""
