"""What Dagster shows and watches of an asset beside its data: owners, tags, freshness, code.

Text of others in its pages of markdown is data, never markup.
"""

from __future__ import annotations

import hashlib
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import dagster as dg

from lakehouse.ingestion.definition_changes import code_of

DEFINITION_METADATA = "lakehouse/definition"
"""Metadata of a materialization: the version of the code that computed it."""


def asset_attributes(
    owners: Sequence[str], tags: Mapping[str, str], fresh_within: timedelta | None = None
) -> dict[str, Any]:
    """Arguments of `dg.AssetSpec`.

    Args:
        owners: e-mail addresses, or teams as `team:name`.
        tags: shown, and to select assets by.
        fresh_within: the asset fails its freshness policy when it was not materialized for so
            long; None: it has none.
    """
    policy = None if fresh_within is None else dg.FreshnessPolicy.time_window(fresh_within)
    return {"owners": list(owners), "tags": dict(tags), "freshness_policy": policy}


def code_reference(function: Callable[..., object]) -> dict[str, dg.MetadataValue]:
    """Metadata that names the file and line of a user's function; none for one of this package."""
    if function.__module__.startswith("lakehouse."):
        return {}
    file = inspect.getsourcefile(function)
    if file is None:
        return {}
    line = inspect.getsourcelines(function)[1]
    with warnings.catch_warnings():  # what a user cannot change is not to be warned of
        warnings.simplefilter("ignore", dg.BetaWarning)
        where = dg.LocalFileCodeReference(file_path=file, line_number=line)
        return {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[where])}


def is_ours(node: object) -> bool:
    """Whether an op's function is one of this package, not of a project."""
    return str(getattr(_function(node), "__module__", "")).startswith("lakehouse.")


def code_digest(node: object) -> str:
    """A digest of the function of an op; empty for graphs, and where there is no source."""
    function = _function(node)
    code = code_of(function) if callable(function) else ""
    return hashlib.blake2b(code.encode(), digest_size=8).hexdigest() if code else ""


def _function(node: object) -> Any:
    return getattr(getattr(node, "compute_fn", None), "decorated_fn", None)


_ASCII_MARKS = "\\`*_{}[]()<>#+!|~$&:"


def plain(text: str) -> str:
    """Markdown that shows the text as it is, on one line, in a table or outside.

    >>> plain("a|b <script>")
    'a&#124;b &#60;script&#62;'
    """
    one_line = " ".join(text.split())
    return "".join(
        f"&#{ord(mark)};" if mark in _ASCII_MARKS else mark if mark.isprintable() else "\ufffd"
        for mark in one_line
    )


def code(text: str) -> str:
    """The text as code where nothing in it could end that, else plain."""
    safe = text.isprintable() and not set(text) & set("`|<>&\\")
    return f"`{text}`" if safe and text else plain(text)
