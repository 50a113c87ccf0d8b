"""Plans that are asked for by their id: those that take long, and those that were told at once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any

from lakehouse.server.error_answers import HttpError
from lakehouse.spec.identifier import Identifier

PATIENCE_SECONDS = 20.0
"""How long a request for a plan waits for it; what takes longer is asked for again."""
NO_SUCH_PLAN = "NoSuchPlanIdException"
_PLANNERS = 8
_KEPT = 64
Page = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Plan:
    """A plan that has an id.

    Attributes:
        identifier: of the table.
        again: makes its first page, once more where it was made already.
        result: the first page, once it is made; None: it was told.
        is_cancelled: whether nobody wants it any more.
    """

    identifier: Identifier
    again: Callable[[], Page]
    result: Future[Page] | None
    is_cancelled: bool = False


class PlansUnderWay:
    """The last plans by their ids. Safe between threads.

    Args:
        patience_seconds: how long `begin` waits.
    """

    def __init__(self, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._patience = patience_seconds
        self._plans: OrderedDict[str, _Plan] = OrderedDict()
        self._lock = threading.Lock()
        self._planners = ThreadPoolExecutor(_PLANNERS, thread_name_prefix="plan")

    def begin(self, identifier: Identifier, plan_id: str, make: Callable[[], Page]) -> Page:
        """The answer to who asks for a plan: it, or the id by which to ask for it.

        Args:
            identifier: of the table.
            plan_id: that no plan has.
            make: makes the first page. What it raises is raised, unless it takes long.
        """
        result = self._planners.submit(make)
        if not wait([result], self._patience).done:
            self._keep(plan_id, _Plan(identifier, make, result))
            return {"status": "submitted", "plan-id": plan_id}
        page = result.result()
        self._keep(plan_id, _Plan(identifier, make, None))
        return {"status": "completed", "plan-id": plan_id, **page}

    def fetch(self, identifier: Identifier, plan_id: str) -> Page:
        """What became of a plan; its first page once that is made.

        Raises HttpError, 404, where there is no such plan; what making it raised.
        """
        plan = self._find(identifier, plan_id)
        if plan.is_cancelled:
            return {"status": "cancelled"}
        if plan.result is None:
            return {"status": "completed", **plan.again()}
        if not plan.result.done():
            return {"status": "submitted"}
        try:
            return {"status": "completed", **plan.result.result()}
        except CancelledError:
            return {"status": "cancelled"}

    def cancel(self, identifier: Identifier, plan_id: str) -> None:
        """Nobody wants it any more. Raises HttpError, 404, where there is no such plan."""
        plan = self._find(identifier, plan_id)
        if plan.result is not None:
            plan.result.cancel()  # what runs already goes on, and is thrown away
        self._keep(plan_id, replace(plan, result=None, is_cancelled=True))

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
            self._plans[plan_id] = plan
            while len(self._plans) > _KEPT:
                _, oldest = self._plans.popitem(last=False)
                if oldest.result is not None:
                    oldest.result.cancel()
