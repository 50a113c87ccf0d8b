"""Plans that clients fetch by their id: those that take long, and those answered at once."""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import orjson

from lakehouse.server.error_answers import HttpError
from lakehouse.server.operations.plan_bounds import DEFAULT_PLAN_BOUNDS, PlanBounds
from lakehouse.spec.identifier import Identifier

PATIENCE_SECONDS = 20.0
"""How long a request for a plan waits for it; a client fetches later what takes longer."""
NO_SUCH_PLAN = "NoSuchPlanIdException"
_PLANNERS = 8
_KEPT = 64
Page = bytes
"""A JSON object that is not empty."""
Principal = str | None
"""The principal that asks; None without authentication."""


class PlanTime:
    """How long a plan may still be worked on. It begins with the work.

    Args:
        bounds: say how long.
    """

    def __init__(self, bounds: PlanBounds) -> None:
        self._bounds = bounds
        self._until = float("inf")
        self._is_cancelled = False

    def begin(self) -> None:
        """Count from now on."""
        self._until = time.monotonic() + self._bounds.seconds

    def cancel(self) -> None:
        """The client has given the plan up."""
        self._is_cancelled = True

    def check(self) -> None:
        """Asked again and again during the work.

        Raises HttpError, 400: it takes too long. CancelledError: the client gave it up.
        """
        if self._is_cancelled:
            raise CancelledError
        if time.monotonic() > self._until:
            raise self._bounds.too_long()


Make = Callable[[PlanTime], Page]
"""Makes a page; it asks the time that it is given."""


@dataclass(eq=False, slots=True)
class _Work:
    """A page that is to be made."""

    principal: Principal
    make: Make
    time: PlanTime
    result: Future[Page]

    def run(self) -> None:
        if not self.result.set_running_or_notify_cancel():
            return
        self.time.begin()
        try:
            page = self.make(self.time)
        # whoever waits gets it
        except BaseException as error:  # noqa: BLE001
            self.result.set_exception(error)
        else:
            self.result.set_result(page)

    def cancel(self) -> None:
        self.time.cancel()
        self.result.cancel()


class _Planners:
    """Threads that make pages: one of each principal in turn, a few of each at a time."""

    def __init__(self, bounds: PlanBounds) -> None:
        self._bounds = bounds
        self._threads = ThreadPoolExecutor(_PLANNERS, thread_name_prefix="plan")
        self._lock = threading.Lock()
        self._waiting: OrderedDict[Principal, deque[_Work]] = OrderedDict()
        self._running: Counter[Principal] = Counter()

    def submit(self, principal: Principal, make: Make) -> _Work:
        """Have a page made. Raises HttpError, 429: the principal has too many that wait."""
        work = _Work(principal, make, PlanTime(self._bounds), Future())
        with self._lock:
            queue = self._waiting.setdefault(principal, deque())
            # plans that clients have cancelled take no place
            alive = sum(not plan.result.cancelled() for plan in queue)
            free = self._bounds.at_once - self._running[principal]
            if alive >= self._bounds.waiting + max(free, 0):
                raise self._bounds.too_many(principal)
            queue.append(work)
            self._begin()
        return work

    def _begin(self) -> None:
        """Begin what may begin. The lock is held."""
        for principal in list(self._waiting):
            if self._running.total() >= _PLANNERS:
                return
            queue = self._waiting[principal]
            while queue and queue[0].result.cancelled():
                queue.popleft()
            if queue and self._running[principal] < self._bounds.at_once:
                work = queue.popleft()
                self._running[principal] += 1
                self._waiting.move_to_end(principal)
                self._threads.submit(self._run, work)
            if not queue:
                del self._waiting[principal]

    def _run(self, work: _Work) -> None:
        try:
            work.run()
        finally:
            with self._lock:
                self._running[work.principal] -= 1
                if not self._running[work.principal]:
                    del self._running[work.principal]
                self._begin()


@dataclass(slots=True)
class _Plan:
    """A plan that has an id.

    Attributes:
        identifier: of the table.
        make: makes its first page, once more where it was made already.
        work: on the first page while it is made, or failed; None: it was made.
        size: bytes that it is counted as.
        is_cancelled: whether the client has given it up.
    """

    identifier: Identifier
    make: Make
    work: _Work | None
    size: int
    is_cancelled: bool = False

    def cancel(self) -> None:
        """Give it up: a plan that already runs ends where it next asks for the time."""
        self.is_cancelled = True
        work, self.work = self.work, None
        if work is not None:
            work.cancel()

    def forget_page(self, result: Future[Page]) -> None:
        """Let go of a page that was made: `make` finds the plan where plans are kept."""
        if not result.cancelled() and result.exception() is None:
            self.work = None


class PlansUnderWay:
    """The plans last fetched by their ids, 64 at most. Safe between threads.

    A principal with many loses its own: the oldest of the principal with most is dropped.

    Args:
        bytes_max: of the requests, all plans together. The newest is always kept.
        bounds: of plans.
        patience_seconds: how long `begin` waits.
    """

    def __init__(
        self,
        bytes_max: int,
        bounds: PlanBounds = DEFAULT_PLAN_BOUNDS,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._patience, self._seconds = patience_seconds, bounds.seconds
        self._bytes_max = max(bytes_max, _KEPT)
        self._planners = _Planners(bounds)
        self._lock = threading.Lock()
        self._plans: dict[Principal, OrderedDict[str, _Plan]] = {}

    def begin(
        self, principal: Principal, identifier: Identifier, plan_id: str, make: Make, size: int
    ) -> Page:
        """The answer to who asks for a plan: it, or the id by which to ask for it; JSON.

        Args:
            principal: who asks.
            identifier: of the table.
            plan_id: that no plan has.
            make: makes the first page. What it raises is raised, unless it takes long.
            size: bytes that `make` holds.

        Raises HttpError: 429, too many plans of the principal wait; 400, it takes too long.
        """
        work = self._planners.submit(principal, make)
        counted = min(max(size, self._bytes_max // _KEPT), self._bytes_max)
        plan = _Plan(identifier, make, work, counted)
        if not wait([work.result], self._patience).done:
            self._keep(principal, plan_id, plan)
            work.result.add_done_callback(plan.forget_page)
            return orjson.dumps({"status": "submitted", "plan-id": plan_id})
        page = work.result.result()
        plan.forget_page(work.result)
        self._keep(principal, plan_id, plan)
        return _joined({"status": "completed", "plan-id": plan_id}, page)

    def page(self, principal: Principal, make: Make) -> Page:
        """A page that somebody waits for.

        Raises HttpError: 429 and 400 as `begin`; 503, others kept it from being made in time.
        """
        work = self._planners.submit(principal, make)
        if not wait([work.result], self._seconds + self._patience).done:
            work.cancel()
            raise HttpError(
                503, "ServiceUnavailableException", "The server makes other plans. Try again."
            )
        return work.result.result()

    def fetch(self, principal: Principal, identifier: Identifier, plan_id: str) -> Page:
        """What became of a plan, with its first page once that is made; JSON.

        Raises HttpError, 404, where there is no such plan; what making it raised.
        """
        plan = self._find(identifier, plan_id)
        work = plan.work  # once: it is let go of meanwhile
        if plan.is_cancelled:
            return orjson.dumps({"status": "cancelled"})
        if work is None:
            return _joined({"status": "completed"}, self.page(principal, plan.make))
        if not work.result.done():
            return orjson.dumps({"status": "submitted"})
        try:
            return _joined({"status": "completed"}, work.result.result())
        except CancelledError:
            return orjson.dumps({"status": "cancelled"})

    def cancel(self, identifier: Identifier, plan_id: str) -> None:
        """Give the plan up. Raises HttpError, 404, where there is no such plan."""
        self._find(identifier, plan_id).cancel()

    def _find(self, identifier: Identifier, plan_id: str) -> _Plan:
        with self._lock:
            candidates = (plans.get(plan_id) for plans in self._plans.values())
            plan = next((candidate for candidate in candidates if candidate is not None), None)
        if plan is None or plan.identifier != identifier:
            raise HttpError(
                404, NO_SUCH_PLAN, f"Plan does not exist: {plan_id[:40]} of {identifier}"
            )
        return plan

    def _keep(self, principal: Principal, plan_id: str, plan: _Plan) -> None:
        gone: list[_Plan] = []
        with self._lock:
            self._plans.setdefault(principal, OrderedDict())[plan_id] = plan
            sizes = {
                table: sum(plan.size for plan in plans.values())
                for table, plans in self._plans.items()
            }
            while sum(sizes.values()) > self._bytes_max:
                # the newest of all is kept, also where its principal has most
                spare = {
                    table: size for table, size in sizes.items() if len(self._plans[table]) > 1
                }
                most = max(spare or sizes.keys() - {principal}, key=sizes.__getitem__)
                _, dropped = self._plans[most].popitem(last=False)
                sizes[most] -= dropped.size
                gone.append(dropped)
                if not self._plans[most]:
                    del self._plans[most], sizes[most]
        for dropped in gone:
            dropped.cancel()


def _joined(begin: dict[str, str], page: Page) -> Page:
    return orjson.dumps(begin)[:-1] + b"," + page[1:]
