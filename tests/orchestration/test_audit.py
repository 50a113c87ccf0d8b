"""Write, audit, publish: what a step that is run again finds of its earlier attempts."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.ingestion.audit import AuditFailedError, CheckOutcome, write_audit_publish
from lakehouse.ingestion.stamp import RunStamp

SCHEMA = pa.schema({"id": pa.int64()})
STAMP = RunStamp("run-1", "mart/daily")


class Killed(BaseException):
    pass


@pytest.fixture
def table(tmp_path):
    made = lh.load_catalog(tmp_path.as_uri()).create_table("mart.daily", SCHEMA)
    made.append(pa.table({"id": [1]}, schema=SCHEMA))
    return made


class Step:
    """One attempt after the other; `passes` and `dies_in` say how the present one goes."""

    def __init__(self, table):
        self.table, self.written, self.passes, self.dies = table, 0, True, False

    def run(self):
        return write_audit_publish(self.table, STAMP, "rows", self.write, self.audit)[0]

    def write(self, branch, commit_id):
        before = len(self.files())
        snapshot = self.table.append(
            pa.table({"id": [2]}, schema=SCHEMA), branch=branch, commit_id=commit_id
        )
        self.written += len(self.files()) > before
        return snapshot

    def audit(self, snapshot):
        assert snapshot.snapshot_id in self.table.metadata.snapshots.ids()
        if self.dies:
            raise Killed
        return [CheckOutcome("check", self.passes, blocking=True, failures=("no",))]

    def files(self):
        return list(self.table.storage.list(f"{self.table.location}/data"))

    def ids(self):
        return sorted(self.table.refresh().scan().to_arrow()["id"].to_pylist())


@pytest.fixture
def step(table):
    return Step(table)


def test_published_it_is_found_and_checked_again(step):
    first = step.run()
    step.table.append(pa.table({"id": [3]}, schema=SCHEMA))
    assert step.run().snapshot_id == first.snapshot_id
    assert step.ids() == [1, 2, 3]
    assert step.written == 1
    assert list(step.table.refs()) == ["main"]


@pytest.mark.parametrize("others", [False, True], ids=["alone", "main moved on"])
@pytest.mark.parametrize("end", ["rejected", "killed"])
def test_unpublished_it_is_written_again(step, end, others, monkeypatch):
    if end == "rejected":
        step.passes = False
        with pytest.raises(AuditFailedError):
            step.run()
    else:
        step.dies = True
        with monkeypatch.context() as patch:  # a dead process tidies nothing up
            patch.setattr(type(step.table), "remove_ref", lambda *_: None)
            with pytest.raises(Killed):
                step.run()
        assert "audit-run-daily" in step.table.refresh().refs()
    assert step.ids() == [1]
    if others:
        step.table.append(pa.table({"id": [3]}, schema=SCHEMA))
    step.passes, step.dies = True, False
    published = step.run()
    assert published.snapshot_id == step.table.metadata.current_snapshot_id
    assert step.ids() == ([1, 2, 3] if others else [1, 2])
    assert step.written == 2
    assert list(step.table.refs()) == ["main"]


def test_rolled_back_it_is_published_again(step):
    before = step.table.current_snapshot()
    step.run()
    step.table.rollback_to(before.snapshot_id)
    step.run()
    assert step.ids() == [1, 2]
    assert step.written == 2
