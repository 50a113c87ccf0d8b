"""Plans that are asked for by their id: those that take long, and those that were told at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import orjson

from lakehouse.kept_by_bytes import KeptByBytes
from lakehouse.server.error_answers import HttpError
from lakehouse.spec.identifier import Identifier

PATIENCE_SECONDS = 20.0
"""How long a request for a plan waits for it; what takes longer is asked for again."""
NO_SUCH_PLAN = "NoSuchPlanIdException"
_PLANNERS = 8
_KEPT = 64
Page = bytes
"""A JSON object that is not empty."""


@dataclass(slots=True)
class _Plan:
    """A plan that has an id.

    Attributes:
        identifier: of the table.
        again: makes its first page, once more where it was made already.
        result: the first page while it is made, and why it was not; None: it was made.
        is_cancelled: whether nobody wants it any more.
    """

    identifier: Identifier
    again: Callable[[], Page]
    result: Future[Page] | None
    is_cancelled: bool = False

    def cancel(self) -> None:
        """Nobody wants it any more: what runs already goes on, and is thrown away."""
        self.is_cancelled = True
        result, self.result = self.result, None
        if result is not None:
            result.cancel()

    def forget_page(self, result: Future[Page]) -> None:
        """Let go of a page that was made: `again` finds the plan where plans are kept."""
        if not result.cancelled() and result.exception() is None:
            self.result = None


class PlansUnderWay:
    """The plans asked for last by their ids, 64 at most. Safe between threads.

    Args:
        bytes_max: of what was asked for, all plans together. The newest is always kept.
        patience_seconds: how long `begin` waits.
    """

    def __init__(self, bytes_max: int, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._patience = patience_seconds
        self._plans = KeptByBytes[str, _Plan](max(bytes_max, _KEPT), _Plan.cancel)
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
        plan = _Plan(identifier, make, result)
        if not wait([result], self._patience).done:
            self._keep(plan_id, plan, size)
            result.add_done_callback(plan.forget_page)
            return orjson.dumps({"status": "submitted", "plan-id": plan_id})
        page = result.result()
        plan.forget_page(result)
        self._keep(plan_id, plan, size)
        return _joined({"status": "completed", "plan-id": plan_id}, page)

    def fetch(self, identifier: Identifier, plan_id: str) -> Page:
        """What became of a plan, with its first page once that is made; JSON.

        Raises HttpError, 404, where there is no such plan; what making it raised.
        """
        plan = self._find(identifier, plan_id)
        result = plan.result  # once: it is let go of meanwhile
        if plan.is_cancelled:
            return orjson.dumps({"status": "cancelled"})
        if result is None:
            return _joined({"status": "completed"}, plan.again())
        if not result.done():
            return orjson.dumps({"status": "submitted"})
        try:
            return _joined({"status": "completed"}, result.result())
        except CancelledError:
            return orjson.dumps({"status": "cancelled"})

    def cancel(self, identifier: Identifier, plan_id: str) -> None:
        """Nobody wants it any more. Raises HttpError, 404, where there is no such plan."""
        self._find(identifier, plan_id).cancel()

    def _find(self, identifier: Identifier, plan_id: str) -> _Plan:
        plan = self._plans.get(plan_id)
        if plan is None or plan.identifier != identifier:
            raise HttpError(
                404, NO_SUCH_PLAN, f"Plan does not exist: {plan_id[:40]} of {identifier}"
            )
        return plan

    def _keep(self, plan_id: str, plan: _Plan, size: int) -> None:
        most = self._plans.bytes_max
        self._plans.put(plan_id, plan, min(max(size, most // _KEPT), most))


def _joined(begin: dict[str, str], page: Page) -> Page:
    return orjson.dumps(begin)[:-1] + b"," + page[1:]
