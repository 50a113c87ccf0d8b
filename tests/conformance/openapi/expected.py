"""Where our server answers otherwise than the specification has it, and why."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol


class Failure(Protocol):
    """A check that failed."""

    @property
    def operation(self) -> str:
        """Method and path."""

    @property
    def check(self) -> str:
        """Its name."""

    @property
    def status(self) -> int:
        """Of the answer."""

    @property
    def message(self) -> str:
        """What Schemathesis says."""

    @property
    def request(self) -> str:
        """Method, target and body."""

    @property
    def answer(self) -> str:
        """The body."""

    @property
    def is_negative(self) -> bool:
        """Whether the request was to be refused."""


@dataclass(frozen=True)
class Expected:
    """A difference: everything that is given has to be found in the failure.

    Attributes:
        reason: why.
        check: its name.
        operation: a pattern.
        status: of the answer.
        message: a pattern.
        request: a pattern.
        answer: a pattern.
        of_negative: whether the request has to be one that was to be refused.
    """

    reason: str
    check: str
    operation: str = ""
    status: int | None = None
    message: str = ""
    request: str = ""
    answer: str = ""
    of_negative: bool = False

    def is_met_by(self, failed: Failure) -> bool:
        """Whether this is why."""
        return (
            failed.check == self.check
            and self.status in (None, failed.status)
            and (failed.is_negative or not self.of_negative)
            and re.search(self.operation, failed.operation) is not None
            and re.search(self.message, failed.message) is not None
            and re.search(self.request, failed.request) is not None
            and re.search(self.answer, failed.answer) is not None
        )


_STATUS, _SCHEMA = "status_code_conformance", "response_schema_conformance"
_ACCEPTED = "negative_data_rejection"
_AS_LEFT_OUT = (
    "null is taken for what is left out, and that for its default, as Iceberg's Java does"
)
_UNREAD = "what nobody reads of a report is not checked: it is logged, or thrown away"
_FILTERS = (
    "of a filter is read what a plan can use; the rest keeps every file, and the client, which "
    "gets the filter back as it was, filters the rows"
)
_KEPT = "what is not known of transforms and representations of views is kept as it came"
EXPECTED = (
    Expected(
        "of views the specification has errors without `error` around them; Iceberg's Java and its "
        "clients have it as everywhere else",
        _SCHEMA,
        operation="/views",
        message='"message" is a required property',
        answer=r'^\{"error":\{"message":',
    ),
    Expected(
        "credentials and signatures are not handed out here (406, and not listed in `endpoints`)",
        _STATUS,
        operation="/(credentials|sign)$",
        status=406,
        answer="hands out no access",
    ),
    Expected(
        "tables are not registered over others (406)",
        _STATUS,
        operation="/register$",
        status=406,
        answer="overwrite is not served",
    ),
    Expected(_FILTERS, _ACCEPTED, operation="/plan$", message="filter", of_negative=True),
    Expected(_FILTERS, _SCHEMA, operation="/plan$", answer='"residual-filter"', of_negative=True),
    Expected(
        "columns whose metrics are asked for are not looked up: plans have no metrics of columns",
        _ACCEPTED,
        operation="/plan$",
        message="stats-fields.*(enum|pattern)",
    ),
    Expected(_UNREAD, _ACCEPTED, operation="/metrics$", message="metrics|filter"),
    Expected(_KEPT, _ACCEPTED, message="transform.*(\\^\\(identity|pattern)"),
    Expected(_KEPT, _SCHEMA, message=r'"" does not match "\^\(identity'),
    Expected(_KEPT, _ACCEPTED, operation="/views", message="representations.*type"),
    Expected(_KEPT, _SCHEMA, operation="/views", message='"type":.* is not valid under any'),
    Expected(
        "`last-column-id` is deprecated: the server finds it out by itself",
        _ACCEPTED,
        message="last-column-id",
    ),
    Expected(
        "booleans and numbers are taken for their text where properties are texts",
        _ACCEPTED,
        message="(updates|properties|metadata|summary) -> Object with invalid additional property",
        request=r'": (true|false|-?[0-9]+)[,}]',
    ),
    Expected(_AS_LEFT_OUT, _ACCEPTED, message="Incorrect type", request=r"\bnull\b|: null"),
    Expected(
        _AS_LEFT_OUT,
        _ACCEPTED,
        message="required property: (requirements|summary|(element-|value-)?required)",
    ),
    Expected(
        "a property that is to be removed twice is removed",
        _ACCEPTED,
        message="removals: Non-unique|uniqueItems",
    ),
    Expected(
        "ways to delegate access that are not known are passed over, as every header is",
        _ACCEPTED,
        message="X-Iceberg-Access-Delegation",
    ),
)
