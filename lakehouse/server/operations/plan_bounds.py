"""What a request for a plan may ask for, and what all those of one principal may take together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from lakehouse.errors import InvalidInputError
from lakehouse.server.error_answers import HttpError
from lakehouse.table.served_plan import LEAVES_MAX, VALUES_MAX

_DEPTH_MAX = 200
"""Deeper ones would have what reads them run out of stack."""
_ADVICE = (
    "Send a filter that keeps more, such as the range of its values, and filter the rows that "
    "come; or plan in the client (scan-planning-mode=client)."
)


@dataclass(frozen=True, slots=True)
class PlanBounds:
    """Bounds of plans, settings of `lakehouse serve --plans NAME=NUMBER`.

    >>> PlanBounds.parse(["leaves=10"]).leaves
    10

    Attributes:
        leaves: conditions of one filter.
        values: that a filter compares with; names in `select` and `stats-fields`.
        depth: levels of one filter.
        seconds: that one plan, or one further page of it, takes once it has begun.
        at_once: plans and pages of one principal that are worked on at a time.
        waiting: further ones of that principal, which wait for these.
    """

    leaves: int = LEAVES_MAX
    values: int = VALUES_MAX
    depth: int = _DEPTH_MAX
    seconds: int = 60
    at_once: int = 4
    waiting: int = 32

    @classmethod
    def parse(cls, settings: Sequence[str]) -> PlanBounds:
        """From `name=number`, several times. Raises InvalidInputError."""
        names = [field.name.replace("_", "-") for field in fields(cls)]
        bounds: dict[str, int] = {}
        for setting in settings:
            name, _, number = setting.partition("=")
            if name not in names or not (number.isascii() and number.isdigit() and int(number)):
                raise InvalidInputError(
                    f"Plans are bounded by NAME=NUMBER, NAME one of {', '.join(names)} and NUMBER "
                    f"1 or more; not {setting!r}."
                )
            if name == "depth" and int(number) > _DEPTH_MAX:
                raise InvalidInputError(f"Filters have {_DEPTH_MAX} levels at most, not {number}.")
            bounds[name.replace("-", "_")] = int(number)
        return replace(cls(), **bounds)

    def shared_by(self, workers: int) -> PlanBounds:
        """Those of one of so many processes: its part of a principal's plans, at least one."""
        at_once, waiting = max(1, self.at_once // workers), max(1, self.waiting // workers)
        return replace(self, at_once=at_once, waiting=waiting)

    def check(self, document: Mapping[str, Any]) -> None:
        """Raise HttpError, 400, for a request that asks for more; this takes little time.

        Args:
            document: the body of the request.
        """
        for key in ("select", "stats-fields"):
            names = document.get(key)
            if isinstance(names, list) and len(names) > self.values:
                raise _refused(f"{key} has {len(names)} names", "values", self.values)
        level: list[Any] = [document.get("filter")]
        leaves = values = depth = 0
        while level:
            depth += 1
            if depth > self.depth:
                raise _refused("The filter has more levels", "depth", self.depth)
            below: list[Any] = []
            for part in level:
                inside = _parts(part)
                below += inside
                leaves += not inside
                values += 0 if inside else _values(part)
            level = below
        if leaves > self.leaves:
            raise _refused(f"The filter has {leaves} conditions", "leaves", self.leaves)
        if values > self.values:
            raise _refused(f"The filter compares with {values} values", "values", self.values)

    def too_long(self) -> HttpError:
        """What a plan ends with that takes longer than it may."""
        return _refused("The plan takes longer, and was given up", "seconds", self.seconds)

    def too_many(self, principal: str | None) -> HttpError:
        """The answer to a principal with more plans than may wait."""
        whose = "All callers together" if principal is None else f"Principal {principal}"
        return HttpError(
            429,
            "TooManyRequestsException",
            f"{whose} may have {self.at_once} plans under way here and {self.waiting} waiting "
            "(--plans at-once=, waiting=). Nothing was done: ask again once some have ended.",
        )


def _refused(what: str, name: str, bound: int) -> HttpError:
    message = f"{what}; this server allows {bound} (--plans {name}={bound}). {_ADVICE}"
    return HttpError(400, "BadRequestException", message)


def _parts(document: Any) -> list[Any]:
    """Of a filter in JSON, those that are filters themselves."""
    kind = document.get("type") if isinstance(document, dict) else None
    if kind == "not":
        return [document.get("child")]
    if kind in ("and", "or"):
        return [document.get("left"), document.get("right")]
    return []


def _values(leaf: Any) -> int:
    values = leaf.get("values") if isinstance(leaf, dict) else None
    if isinstance(values, dict):
        values = values.get("values")
    return len(values) if isinstance(values, list) else 1


DEFAULT_PLAN_BOUNDS = PlanBounds()
