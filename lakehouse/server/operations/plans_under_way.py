"""Plans that are asked for by their id: those that take long, and those that were told at once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace

import orjson

from lakehouse.server.error_answers import HttpError
from lakehouse.spec.identifier import Identifier

PATIENCE_SECONDS = 20.0
"""How long a request for a plan waits for it; what takes longer is asked for again."""
NO_SUCH_PLAN = "NoSuchPlanIdException"
_PLANNERS = 8
_KEPT = 64
Page = bytes
"""A JSON object that is not empty."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """A plan that has an id.

    Attributes:
        identifier: of the table.
        again: makes its first page, once more where it was made already.
        result: the first page while it is made, and why it was not; None: it was made.
        size: bytes that `again` holds.
        is_cancelled: whether nobody wants it any more.
    """

    identifier: Identifier
    again: Callable[[], Page]
    result: Future[Page] | None
    size: int
    is_cancelled: bool = False


class PlansUnderWay:
    """The last plans by their ids. Safe between threads.

    Args:
        bytes_max: of what was asked for, all plans together. The newest is always kept.
        patience_seconds: how long `begin` waits.
    """

    def __init__(self, bytes_max: int, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._bytes_max, self._patience = bytes_max, patience_seconds
        self._held = 0
        self._plans: OrderedDict[str, _Plan] = OrderedDict()
        self._lock = threading.Lock()
        self._planners = ThreadPoolExecutor(_PLANNERS, thread_name_prefix="plan")

    def begin(
        self, identifier: Identifier, plan_id: str, make: Callable[[], Page], size: int
    ) -> Page:
        """The answer to who asks for a plan: it, or the id by which to ask for it; JSON.

        Args:
            identifier: of the table.
            plan_id: that no plan has.
            make: makes the first page. What it raises is raised, unless it takes long.
            size: bytes that `make` holds.
        """
        result = self._planners.submit(make)
        if not wait([result], self._patience).done:
            self._keep(plan_id, _Plan(identifier, make, result, size))
            result.add_done_callback(lambda done: self._finished(plan_id, done))
            return orjson.dumps({"status": "submitted", "plan-id": plan_id})
        page = result.result()
        self._keep(plan_id, _Plan(identifier, make, None, size))
        return _joined({"status": "completed", "plan-id": plan_id}, page)

    def fetch(self, identifier: Identifier, plan_id: str) -> Page:
        """What became of a plan, with its first page once that is made; JSON.

        Raises HttpError, 404, where there is no such plan; what making it raised.
        """
        plan = self._find(identifier, plan_id)
        if plan.is_cancelled:
            return orjson.dumps({"status": "cancelled"})
        if plan.result is None:
            return _joined({"status": "completed"}, plan.again())
        if not plan.result.done():
            return orjson.dumps({"status": "submitted"})
        try:
            return _joined({"status": "completed"}, plan.result.result())
        except CancelledError:
            return orjson.dumps({"status": "cancelled"})

    def cancel(self, identifier: Identifier, plan_id: str) -> None:
        """Nobody wants it any more. Raises HttpError, 404, where there is no such plan."""
        plan = self._find(identifier, plan_id)
        if plan.result is not None:
            plan.result.cancel()  # what runs already goes on, and is thrown away
        self._keep(plan_id, replace(plan, result=None, is_cancelled=True))

    def _finished(self, plan_id: str, result: Future[Page]) -> None:
        """Let go of a page that was made: `again` finds the plan where plans are kept."""
        if result.cancelled() or result.exception() is not None:
            return
        with self._lock:
            plan = self._plans.get(plan_id)
            if plan is not None and not plan.is_cancelled:
                self._plans[plan_id] = replace(plan, result=None)

    def _find(self, identifier: Identifier, plan_id: str) -> _Plan:
        with self._lock:
            plan = self._plans.get(plan_id)
        if plan is None or plan.identifier != identifier:
            raise HttpError(
                404, NO_SUCH_PLAN, f"Plan does not exist: {plan_id[:40]} of {identifier}"
            )
        return plan

    def _keep(self, plan_id: str, plan: _Plan) -> None:
        with self._lock:
            replaced = self._plans.get(plan_id)
            self._held += plan.size - (0 if replaced is None else replaced.size)
            self._plans[plan_id] = plan
            while len(self._plans) > _KEPT or (
                self._held > self._bytes_max and len(self._plans) > 1
            ):
                _, oldest = self._plans.popitem(last=False)
                self._held -= oldest.size
                if oldest.result is not None:
                    oldest.result.cancel()


def _joined(begin: dict[str, str], page: Page) -> Page:
    return orjson.dumps(begin)[:-1] + b"," + page[1:]
