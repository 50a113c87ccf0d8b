"""Scan planning for clients: our planner answers which files to read."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from http.client import HTTPException
from typing import Any
from urllib.parse import quote

import orjson
from pyiceberg.types import BinaryType, FixedType

from lakehouse.catalog.catalog_protocol import TableVersion
from lakehouse.errors import InvalidInputError, NoSuchSnapshotError
from lakehouse.kept_by_bytes import KeptByBytes
from lakehouse.scan.planner import ScanPlan, ScanRequest, plan_appends, plan_scan
from lakehouse.scan.reports.listeners import ENGINE_REST
from lakehouse.server.access.asked_privileges import on_table
from lakehouse.server.access.confined_tables import check_manifests
from lakehouse.server.access.privileges import Privilege
from lakehouse.server.error_answers import HttpError, error_answer
from lakehouse.server.http_messages import Answer, Call, json_answer
from lakehouse.server.operations.filter_json import filter_from_json
from lakehouse.server.operations.plan_bounds import DEFAULT_PLAN_BOUNDS, PlanBounds
from lakehouse.server.operations.plans_under_way import (
    NO_SUCH_PLAN,
    PATIENCE_SECONDS,
    PlansUnderWay,
    PlanTime,
)
from lakehouse.server.rest_operation import Operation, Served
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.json_fields import optional_bool, optional_int, optional_list, require_str
from lakehouse.spec.manifests.content_file_json import file_to_json, types_of_partitions
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata, types_of
from lakehouse.spec.schema.iceberg_types import spelled

TASKS_MAX = 5000
"""Files in one answer; further ones are fetched by plan tasks."""
ASKED_BYTES = 2 * 1024 * 1024
"""What a request for a plan has, at most; its token stands in a request for a page."""
PAGE_BYTES = 16 * 1024 * 1024
"""Of the request, repeated in one answer: each file has the filter, each token all of it."""
_ASK_AGAIN = (429, 503)
_LONG_MS = 1000
"""A plan that took longer is kept even without further files: the client fetches it by its id."""


@dataclass(frozen=True, slots=True)
class _PlanRequest:
    """A request for a plan of one version of a table; hashable as its JSON is."""

    identifier: Identifier
    metadata_location: str
    body: bytes

    def files_max(self) -> int:
        """Files in one answer."""
        return max(1, min(TASKS_MAX, PAGE_BYTES // len(self.body)))


class ScanPlanning:
    """The operations of planning, which share their plans.

    Args:
        bytes_max: of plans that are kept, so that their further tasks are answered without planning
            again.
        bounds: of requests.
    """

    def __init__(self, bytes_max: int, bounds: PlanBounds = DEFAULT_PLAN_BOUNDS) -> None:
        self._bounds = bounds
        # what was planned for who may read any manifest is not for others
        self._plans: KeptByBytes[tuple[_PlanRequest, bool], ScanPlan] = KeptByBytes(bytes_max)
        self._under_way = PlansUnderWay(bytes_max, bounds)

    def operations(self) -> tuple[Operation, ...]:
        """To ask for a plan, for what became of it, for its further tasks; to have it no more."""
        table = "/namespaces/{namespace}/tables/{table}"
        plan, reads = f"{table}/plan", on_table(Privilege.READ)
        return (
            # they wait for planners, and hold no thread that others need meanwhile
            Operation("POST", plan, self.plan, asks=reads, waits=True, body_max=ASKED_BYTES),
            Operation("GET", f"{plan}/{{plan_id}}", self.fetch, asks=reads, waits=True),
            Operation("DELETE", f"{plan}/{{plan_id}}", self.cancel, asks=reads),
            # in a token the body is a text in JSON, in Base64
            Operation(
                "POST",
                f"{table}/tasks",
                self.tasks,
                asks=reads,
                waits=True,
                body_max=4 * ASKED_BYTES,
            ),
        )

    def plan(self, served: Served, call: Call) -> Answer:
        """The files that may hold rows; an id to ask again where finding them takes long."""
        version = served.tables.newest(call.table())
        document = call.document() if call.body else {}
        self._bounds.check(document)
        body = orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
        # a token names a snapshot: later tasks are of the same one, whatever was committed since
        question = _PlanRequest(
            version.identifier, version.metadata_location, _with_snapshot(version.metadata, body)
        )

        def first_page(time: PlanTime) -> bytes:
            plan = self._planned(served, call, version, question, time.check)
            return _page(plan, version, _Page(question))

        plan_id, size = str(served.environment.new_uuid()), len(call.body) + len(question.body)
        if served.siblings is not None:
            plan_id = served.siblings.mark(plan_id)
        answer = self._under_way.begin(
            served.caller.name, version.identifier, plan_id, first_page, size
        )
        return Answer(200, answer)

    def fetch(self, served: Served, call: Call) -> Answer:
        """What became of a plan."""
        elsewhere = self._elsewhere("GET", served, call)
        if elsewhere is not None:
            return elsewhere
        try:
            body = self._under_way.fetch(served.caller.name, call.table(), call.names["plan_id"])
            return Answer(200, body)
        except HttpError as error:
            if error.kind == NO_SUCH_PLAN or error.status in _ASK_AGAIN:
                raise
            return _failed(error)
        # the request to plan is what failed, not this one
        except Exception as error:  # noqa: BLE001
            return _failed(error)

    def cancel(self, served: Served, call: Call) -> Answer:
        """Give the plan up."""
        elsewhere = self._elsewhere("DELETE", served, call)
        if elsewhere is None:
            self._under_way.cancel(call.table(), call.names["plan_id"])
        return elsewhere or Answer()

    def _elsewhere(self, method: str, served: Served, call: Call) -> Answer | None:
        """What the process says that has the plan; None: it would be this one.

        Raises HttpError: 404, that process ended; 503, it does not answer.
        """
        plan_id, siblings = call.names["plan_id"], served.siblings
        owner = None if siblings is None else siblings.owner(plan_id)
        if siblings is None or owner is None:
            return None
        names = [quote(call.names[part], safe="") for part in ("namespace", "table", "plan_id")]
        target = "/v1/namespaces/{}/tables/{}/plan/{}".format(*names)
        seconds = self._bounds.seconds + 2 * PATIENCE_SECONDS  # its own are over before
        try:
            return siblings.ask(owner, method, target, call.headers, seconds)
        except TimeoutError as error:
            raise HttpError(
                503, "ServiceUnavailableException", "The worker that has the plan is busy."
            ) from error
        except (OSError, HTTPException) as error:
            raise HttpError(
                404, NO_SUCH_PLAN, f"Plan does not exist: {plan_id[:60]}; its worker ended."
            ) from error

    def tasks(self, served: Served, call: Call) -> Answer:
        """Further files of a plan."""
        document = call.document()
        token = call.read(lambda: require_str(document, "plan-task", "body"))
        asked_page = _from_token(call.table(), token)
        # the client may have made the token up
        self._bounds.check(orjson.loads(asked_page.plan.body))
        version = served.tables.newest(call.table())

        def page(time: PlanTime) -> bytes:
            plan = self._planned(served, call, version, asked_page.plan, time.check)
            return _page(plan, version, asked_page)

        return Answer(200, self._under_way.page(served.caller.name, page))

    def _planned(
        self,
        served: Served,
        call: Call,
        version: TableVersion,
        question: _PlanRequest,
        checkpoint: Callable[[], None],
    ) -> ScanPlan:
        # a token may name any version: what is planned now is of the newest
        newest = replace(question, metadata_location=version.metadata_location)
        reads_all = served.caller.may(Privilege.MANAGE, ())
        for candidate in dict.fromkeys((question, newest)):
            kept_plan = self._plans.get((candidate, reads_all))
            if kept_plan is not None:
                served.meters.planned(None)
                return kept_plan
        document = orjson.loads(question.body)
        try:
            request, after = call.read(lambda: _request(document, version.metadata, checkpoint))
            storage = served.catalog.storage(version.metadata.location)
            read = _snapshots_read(version.metadata, request, after)
            check_manifests(served.catalog, served.caller, version, read, storage)
            plan = (
                plan_scan(request, storage)
                if after is None
                else plan_appends(request, after, storage)
            )
        except NoSuchSnapshotError as error:
            raise HttpError(404, "NoSuchSnapshotException", error.message) from error
        served.meters.planned(plan.report)
        served.lake.listeners.planned(str(version.identifier), plan.report, engine=ENGINE_REST)
        if len(plan.tasks) > question.files_max() or sum(plan.report.stage_ms.values()) > _LONG_MS:
            self._plans.put((newest, reads_all), plan, plan.memory_bytes + len(question.body))
        return plan


@dataclass(frozen=True, slots=True)
class _Page:
    """Some files of a plan.

    Attributes:
        plan: which.
        begin: the first of the files.
        is_linked: whether the answer names the next page; else the first one has named all.
    """

    plan: _PlanRequest
    begin: int = 0
    is_linked: bool = False

    def token(self) -> str:
        """By which clients ask for it."""
        parts = [self.plan.metadata_location, self.plan.body.decode(), self.begin, self.is_linked]
        return base64.urlsafe_b64encode(orjson.dumps(parts)).decode()

    def following(self, files: int) -> list[str]:
        """Tokens of further pages, of a plan of so many files; no more of them than fit in one."""
        size = self.plan.files_max()
        begins = range(self.begin + size, files, size)
        if not begins or (self.begin and not self.is_linked):
            return []
        following = replace(self, begin=begins[0], is_linked=True).token()
        if self.is_linked or len(following) * len(begins) > PAGE_BYTES:
            return [following]
        return [replace(self, begin=begin).token() for begin in begins]


def _page(plan: ScanPlan, version: TableVersion, page: _Page) -> bytes:
    """One page of a plan; keeps none of what is made for it."""
    whole = orjson.loads(page.plan.body).get("filter")
    types = types_of_partitions(version.metadata.specs(), types_of(version.metadata))
    deletes: dict[tuple[str, int | None], int] = {}
    delete_files: list[dict[str, Any]] = []

    def reference(file: DataFile) -> int:
        # vectors share a Puffin file: where one begins is a part of its name
        key = (file.file_path, file.content_offset)
        if key not in deletes:
            deletes[key] = len(delete_files)
            delete_files.append(file_to_json(file, types))
        return deletes[key]

    tasks: list[dict[str, Any]] = []
    for task in plan.tasks[page.begin : page.begin + page.plan.files_max()]:
        item: dict[str, Any] = {"data-file": file_to_json(task.data_file, types)}
        if task.deletes:
            item["delete-file-references"] = [reference(delete) for delete in task.deletes]
        if whole is not None:
            item["residual-filter"] = whole
        tasks.append(item)
    document: dict[str, Any] = {"file-scan-tasks": tasks}
    if delete_files:
        document["delete-files"] = delete_files
    following = page.following(len(plan.tasks))
    if following:
        document["plan-tasks"] = following
    plan.forget()
    return orjson.dumps(document)


def _failed(error: Exception) -> Answer:
    """REST catalog: FailedPlanningResult."""
    answer = orjson.loads(error_answer(error, changes=False).body)
    return json_answer({"status": "failed", **answer})


def _with_snapshot(metadata: TableMetadata, body: bytes) -> bytes:
    document = orjson.loads(body)
    if document.get("snapshot-id") is None and document.get("end-snapshot-id") is None:
        document["snapshot-id"] = metadata.current_snapshot_id
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)


def _request(
    document: Mapping[str, Any], metadata: TableMetadata, checkpoint: Callable[[], None]
) -> tuple[ScanRequest, int | None]:
    """What to plan, and after which snapshot where the client wants appended files alone."""
    start = optional_int(document, "start-snapshot-id", "body")
    end = optional_int(document, "end-snapshot-id", "body")
    snapshot_id = optional_int(document, "snapshot-id", "body")
    if start is not None and (end is None or snapshot_id is not None):
        raise InvalidInputError("start-snapshot-id needs end-snapshot-id, and no snapshot-id.")
    own_schema = optional_bool(document, "use-snapshot-schema", "body", default=False)
    case_sensitive = optional_bool(document, "case-sensitive", "body", default=True)
    snapshot = None if snapshot_id is None else metadata.snapshot(snapshot_id)
    schema = metadata.schema_for(snapshot) if own_schema else metadata.schema()

    def is_readable(name: str) -> bool:
        checkpoint()
        try:
            own_name = spelled(name, schema, case_sensitive=case_sensitive)
            kind = schema.find_field(own_name).field_type
        except ValueError:
            return True  # binding says what is wrong with it
        return not isinstance(kind, BinaryType | FixedType)

    filter_json = document.get("filter")
    select = _names(document, "select")
    # hints: an answer may have more rows, and has no metrics of columns
    _names(document, "stats-fields")
    optional_int(document, "min-rows-requested", "body")
    request = ScanRequest(
        metadata=metadata,
        snapshot_id=end if end is not None else snapshot_id,
        current_schema=not own_schema,
        where=None if filter_json is None else filter_from_json(filter_json, is_readable),
        select=select or None,
        case_sensitive=case_sensitive,
        whole_residuals=True,
        checkpoint=checkpoint,
    )
    return request, start


def _names(document: Mapping[str, Any], key: str) -> list[str]:
    names = optional_list(document, key, "body")
    if not all(isinstance(column, str) for column in names):
        raise InvalidInputError(f"{key} must be names of columns.")
    return names


def _snapshots_read(
    metadata: TableMetadata, request: ScanRequest, after: int | None
) -> Iterator[Snapshot]:
    """The snapshots whose manifests are planned."""
    for snapshot in metadata.ancestors(request.snapshot_id):
        if snapshot.snapshot_id == after:
            return
        yield snapshot
        if after is None:
            return


def _from_token(identifier: Identifier, token: str) -> _Page:
    try:
        location, body, begin, *linked = orjson.loads(base64.urlsafe_b64decode(token))
        document = orjson.loads(body)
    except (binascii.Error, ValueError, TypeError) as error:
        raise InvalidInputError("plan-task is none that this server gave.") from error
    if not (isinstance(document, dict) and isinstance(location, str) and isinstance(begin, int)):
        raise InvalidInputError("plan-task is none that this server gave.")
    return _Page(_PlanRequest(identifier, location, body.encode()), max(begin, 0), linked == [True])
