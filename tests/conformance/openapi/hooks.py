"""Schemathesis imports this: what makes a request one of its own, as no schema can say.

The generator likes to repeat a value. A key of a request that was given to another one is refused,
and so is a name that is taken; what was dropped is gone. Nothing behind these would be reached.
"""

from __future__ import annotations

import itertools
import random
import re
from typing import Any
from uuid import UUID

import schemathesis

_KEY = "Idempotency-Key"
_keys = random.Random(1)
_names = itertools.count()
_used: dict[str, Any] = {}
_NUMBERED = re.compile(r"(gone|gone_view|dropped|left|named)_[0-9]{2}")


@schemathesis.hook
def before_call(_context: Any, case: Any, _kwargs: dict[str, Any]) -> None:
    """Another key in place of one that is well-formed, other names in a request that is."""
    key = (case.headers or {}).get(_KEY)
    if isinstance(key, str) and _is_uuid(key):
        case.headers[_KEY] = str(UUID(int=_keys.getrandbits(128), version=4))
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    for name, value in (case.path_parameters or {}).items():
        case.path_parameters[name] = _next(value)
    if isinstance(case.body, dict) and next(_names) % 4:  # some find that it is there already
        case.body = _renamed(case.operation.label, case.body)


def _renamed(operation: str, body: dict[str, Any]) -> dict[str, Any]:
    made = f"made_{next(_names)}"
    if operation == "POST /v1/namespaces":
        return {**body, "namespace": [made]}
    if operation.endswith("/rename"):
        source = {**body["source"], "name": _next(body["source"]["name"])}
        return {**body, "source": source, "destination": {**body["destination"], "name": made}}
    return {**body, "name": made} if "name" in body else body


def _next(name: Any) -> Any:
    """The next of a row of names that end with a number."""
    match = _NUMBERED.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        return name
    number = next(_used.setdefault(match[1], itertools.count()))
    return f"{match[1]}_{number % 100:02}"


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text.lower()
    except ValueError:
        return False
