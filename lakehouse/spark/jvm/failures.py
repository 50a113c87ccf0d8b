"""Typed errors across Spark, which carries what a task raised as text alone."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from lakehouse import errors
from lakehouse.errors import LakehouseError, StorageError

_FAILURE = re.compile(r"lakehouse-failure:([A-Za-z0-9+/=]+):")


def marked(error: LakehouseError) -> str:
    """Text by which `failure_of` finds the error again in the driver."""
    facts = {"type": type(error).__name__, "message": error.message, "retryable": error.retryable}
    return (
        f"lakehouse-failure:{base64.b64encode(json.dumps(facts).encode()).decode()}: "
        f"{error.message}"
    )


def failure_of(text: str) -> LakehouseError | None:
    """The error that `marked` put into a text; None when it holds none."""
    match = _FAILURE.search(text)
    if match is None:
        return None
    facts = json.loads(base64.b64decode(match.group(1)))
    kind = getattr(errors, facts["type"], LakehouseError)
    if issubclass(kind, StorageError):
        return kind(facts["message"], retryable=facts["retryable"])
    return kind(facts["message"]) if issubclass(kind, LakehouseError) else None


@contextmanager
def marking() -> Iterator[None]:
    """On a worker: raise a LakehouseError as a RuntimeError in which `unmarking` finds it."""
    try:
        yield
    except LakehouseError as error:
        raise RuntimeError(marked(error)) from error


@contextmanager
def unmarking() -> Iterator[None]:
    """In the driver: raise what a task marked as what it was."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        failure = failure_of(str(error))
        if failure is None:
            raise
        raise failure from error
