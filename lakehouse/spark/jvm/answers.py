"""Objects of this process that Spark's JVM asks (`Answerer.java`)."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from lakehouse.errors import (
    AlreadyExistsError,
    InvalidInputError,
    LakehouseError,
    NamespaceNotEmptyError,
    NotFoundError,
    UnsupportedFeatureError,
)

logger = logging.getLogger(__name__)

_INPUT = (InvalidInputError, NotFoundError, AlreadyExistsError, NamespaceNotEmptyError)
Arguments = Mapping[str, Any]
Verb = Callable[[Arguments, Any], object]
"""Takes what the question says, and the Java object that came along (None without one)."""


class Raw(str):
    """An answer that is text of its own instead of JSON."""

    __slots__ = ()


class Answers:
    """Answers questions by verb (`java.util.function.BiFunction`, called by the JVM).

    A verb gives a value for JSON, `Raw` text, an object of the JVM, or other `Answers`. An
    exception must not cross as one, because py4j would lose what it says: it is a failure in JSON.

    Args:
        name: what answers, for the log.
        verbs: by name.
    """

    def __init__(self, name: str, verbs: Mapping[str, Verb]) -> None:
        self._name = name
        self._verbs = verbs

    def apply(self, question: str, java: Any) -> object:
        """The answer to `verb NUL JSON`."""
        verb, _, arguments = question.partition("\0")
        try:
            answer = self._verbs[verb](json.loads(arguments) if arguments else {}, java)
        except Exception as error:
            if not isinstance(error, LakehouseError):
                logger.exception("%s: %s failed", self._name, verb)
            return "E" + json.dumps(_failure(error))
        if isinstance(answer, Raw):
            return f"O{answer}"
        if isinstance(answer, Answers) or hasattr(answer, "_get_object_id"):
            return answer
        return "O" + json.dumps(answer)

    class Java:
        """The interface py4j implements with this class."""

        implements = ("java.util.function.BiFunction",)


def _failure(error: Exception) -> dict[str, str]:
    kind = "runtime"
    if isinstance(error, UnsupportedFeatureError):
        kind = "unsupported"
    elif isinstance(error, _INPUT):
        kind = "input"
    message = error.message if isinstance(error, LakehouseError) else str(error)
    return {"type": type(error).__name__, "message": message, "kind": kind}
