"""A small table in memory, clocks that can be moved, and a storage that dies at a chosen step."""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections import Counter

import pyarrow as pa

import lakehouse.lake
from lakehouse.environment import Environment
from lakehouse.storage.storage_protocol import DeleteReport

DAY = 24 * 3600 * 1000
SCHEMA = pa.schema(
    [pa.field("id", pa.int64()), pa.field("region", pa.string()), pa.field("amount", pa.float64())]
)


class Killed(BaseException):
    """The process is gone."""


def lake_in_memory():
    return lakehouse.lake.load_catalog(f"memory://{uuid.uuid4().hex}")


def rows(ids, region="eu"):
    return pa.table(
        {
            "id": list(ids),
            "region": [region] * len(list(ids)),
            "amount": [float(one) for one in ids],
        },
        schema=SCHEMA,
    )


def events(lake, name="raw.events", partition_by=("region",), **arguments):
    return lake.create_table(name, SCHEMA, partition_by=list(partition_by), **arguments)


def contents(table, snapshot_id=None):
    """The multiset of rows of a table, as it is in the catalog now."""
    fresh = table.refresh() if snapshot_id is None else table
    return Counter(
        tuple(row.values()) for row in fresh.scan(snapshot_id=snapshot_id).to_arrow().to_pylist()
    )


def at(days=0.0):
    """An environment whose clock is so many days ahead."""
    return dataclasses.replace(
        Environment.system(),
        now_ms=lambda: int(time.time() * 1000 + days * DAY),
        sleep=lambda _seconds: None,
    )


class DyingStorage:
    """Passes calls on until `steps` of them changed something; then the process is dead."""

    def __init__(self, inner, budget):
        self._inner = inner
        self._budget = budget

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def _spend(self):
        if self._budget[0] <= 0:
            raise Killed
        self._budget[0] -= 1

    def write(self, location, data):
        self._spend()
        return self._inner.write(location, data)

    def create(self, location, data):
        self._spend()
        return self._inner.create(location, data)

    def write_new(self, files):
        for location, data in files.items():
            self._spend()
            self._inner.write(location, data)

    def open_output(self, location):
        self._spend()
        return self._inner.open_output(location)

    def delete(self, locations):
        deleted, missing = [], []
        for location in locations:
            self._spend()
            report = self._inner.delete([location])
            assert not report.failed
            deleted += report.deleted
            missing += report.missing
        return DeleteReport(tuple(deleted), tuple(missing))


class DyingCatalog:
    """A catalog whose storage dies after `steps` changes.

    It dies itself right before or after commit number `steps`.
    """

    def __init__(self, inner, steps):
        self._inner = inner
        self.budget = [steps]

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def storage(self, location):
        return DyingStorage(self._inner.storage(location), self.budget)

    def commit(self, *arguments):
        if self.budget[0] <= 0:
            raise Killed
        self.budget[0] -= 1
        version = self._inner.commit(*arguments)
        if self.budget[0] <= 0:
            raise Killed
        self.budget[0] -= 1
        return version


class FailingStorage:
    """Fails to read the files named, with the error given."""

    def __init__(self, inner, failing, error):
        self._inner = inner
        self._failing = failing
        self._error = error

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def _check(self, location):
        if any(part in location for part in self._failing):
            raise self._error

    def read(self, location):
        self._check(location)
        return self._inner.read(location)

    def read_range(self, location, offset, length):
        self._check(location)
        return self._inner.read_range(location, offset, length)

    def filesystem(self, location):
        self._check(location)
        return self._inner.filesystem(location)


class FailingCatalog:
    """A catalog whose storage fails to read some files."""

    def __init__(self, inner, failing, error):
        self._inner = inner
        self._failing = failing
        self._error = error

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def storage(self, location):
        return FailingStorage(self._inner.storage(location), self._failing, self._error)
