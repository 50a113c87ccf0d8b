"""Commits that their callers named, so that a step that is run again commits once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Self

from lakehouse.errors import InvalidInputError
from lakehouse.spec.metadata.snapshot import MAIN_BRANCH, Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.table_updates import SetProperties

COMMIT_ID = "lakehouse.commit-id"
"""The entry of a summary that has the name of the commit."""
STREAM_MARK = "lakehouse.stream."
"""Begins the table properties that say which batch of a stream was committed last."""
_COMMIT_ID = re.compile(r"[!#-\[\]-~]{1,200}")  # printable ASCII that JSON never escapes
_QUERY_ID = re.compile(r"[0-9A-Za-z_-]{1,100}")
STREAM_PREFIX = "stream:"
"""Begins the names of commits of streams; the query's id and the batch's number follow."""


class StreamBatch(str):
    """The `commit_id` of one batch of a stream, which a branch takes in once for ever.

    >>> batch = lh.StreamBatch("b5a1c0de", 7)
    >>> events.append(more, commit_id=batch).replayed
    False
    >>> events.append(more, commit_id=batch).replayed
    True

    Beside the snapshot's summary, the same commit notes the batch in a table property, so that it
    is known after its snapshot has expired. A batch that was rolled back is written again.
    """

    __slots__ = ("batch_id", "query_id")
    query_id: str
    batch_id: int

    def __new__(cls, query_id: str, batch_id: int) -> Self:
        """Name a batch.

        Args:
            query_id: the stream's, the same after each restart (in Spark the id of the query).
            batch_id: its number; numbers rise.

        Raises:
            InvalidInputError: an id of other characters than letters, digits, `-` and `_`, or
                longer than 100; a negative number.
        """
        if _QUERY_ID.fullmatch(query_id) is None or batch_id < 0:
            raise InvalidInputError(
                f"Batch {batch_id} of the stream {query_id!r}: a stream's id has up to 100 "
                "letters, digits, - and _, and its batches count from 0."
            )
        made = super().__new__(cls, f"{STREAM_PREFIX}{query_id}:{batch_id}")
        made.query_id, made.batch_id = query_id, batch_id
        return made

    def property_name(self, branch: str) -> str:
        """The property that notes the stream's last batch on a branch."""
        name = f"{STREAM_MARK}{self.query_id}"
        return name if branch == MAIN_BRANCH else f"{name}.{branch}"

    def mark(self, snapshot: Snapshot, branch: str) -> SetProperties:
        """What the commit of the batch notes beside its snapshot."""
        noted = {
            "batch": self.batch_id,
            "snapshot": snapshot.snapshot_id,
            "sequence": snapshot.sequence_number,
        }
        return SetProperties({self.property_name(branch): json.dumps(noted)})

    def marked(self, metadata: TableMetadata, branch: str) -> tuple[int, int, int] | None:
        """The last batch noted on a branch; id and sequence number of its snapshot."""
        name = self.property_name(branch)
        text = metadata.properties.get(name)
        if text is None:
            return None
        try:
            noted = json.loads(text)
            return int(noted["batch"]), int(noted["snapshot"]), int(noted["sequence"])
        except (ValueError, TypeError, KeyError) as error:
            raise InvalidInputError(
                f"Table {metadata.location}: the property {name} is {text!r}, and does not say "
                "which batch of the stream was committed last. Remove it if the stream may write "
                "its batch again.",
                property=name,
            ) from error


def head_of(metadata: TableMetadata, branch: str) -> Snapshot | None:
    """The snapshot a commit to `branch` is built on. Raises InvalidInputError when it is a tag."""
    ref = metadata.refs.get(branch)
    if ref is None:
        return metadata.snapshot_for_ref(MAIN_BRANCH)
    if ref.type != "branch":
        raise InvalidInputError(
            f"{branch!r} is a tag of {metadata.location}: commits go to branches.", ref=branch
        )
    return metadata.snapshot(ref.snapshot_id)


def check_commit_id(commit_id: str) -> None:
    """Raise InvalidInputError for what a summary cannot say."""
    if _COMMIT_ID.fullmatch(commit_id) is None:
        raise InvalidInputError(
            f"Commit id {commit_id!r}: use up to 200 printable ASCII characters without blanks, "
            "quotes, backslashes."
        )


def snapshots_of_commit(
    metadata: TableMetadata, branch: str, commit_id: str
) -> tuple[Snapshot, ...]:
    """The snapshots in the history of a branch that a commit of this name made, in order.

    What was rolled back, or written to another branch only, is not in the history and does not
    count; nor does what has expired, unless it is a `StreamBatch`: for such a one the oldest
    snapshot that is left. A branch that does not exist yet has the history of `main`, on which it
    would be built.

    Raises:
        InvalidInputError: `branch` is a tag.
    """
    snapshots: tuple[Snapshot, ...] = ()
    if _is_mentioned(metadata, f'"{commit_id}"'):
        named = (
            snapshot
            for snapshot in _history(metadata, branch)
            if snapshot.summary.get(COMMIT_ID) == commit_id
        )
        snapshots = tuple(named)[::-1]
    if snapshots or not isinstance(commit_id, StreamBatch):
        return snapshots
    return _oldest_with(metadata, branch, commit_id)


def batch_of(snapshot: Snapshot) -> tuple[str, int] | None:
    """The stream's id and the batch's number of a snapshot that a batch made."""
    name, _, number = snapshot.summary.get(COMMIT_ID, "").rpartition(":")
    if not name.startswith(STREAM_PREFIX) or not number.isdecimal():
        return None
    return name.removeprefix(STREAM_PREFIX), int(number)


def last_batches(metadata: TableMetadata) -> dict[str, int]:
    """By stream the last batch in the history of `main`, also where its snapshot has expired."""
    last: dict[str, int] = {}
    for snapshot in _history(metadata, MAIN_BRANCH):
        batch = batch_of(snapshot)
        if batch is not None:
            last.setdefault(*batch)
    for name in metadata.properties:
        query_id = name.removeprefix(STREAM_MARK)
        if query_id == name or _QUERY_ID.fullmatch(query_id) is None:  # none, or of a branch
            continue
        mark = StreamBatch(query_id, 0).marked(metadata, MAIN_BRANCH)
        number = -1 if mark is None else mark[0]
        if number > last.get(query_id, -1) and snapshots_of_commit(
            metadata, MAIN_BRANCH, StreamBatch(query_id, number)
        ):
            last[query_id] = number
    return last


def _oldest_with(metadata: TableMetadata, branch: str, batch: StreamBatch) -> tuple[Snapshot, ...]:
    """The oldest snapshot that is left, where the older ones that expired had the batch.

    They had it if a later batch of the stream is in what is left, or if the property notes this
    one (or a later one) with a sequence number below what is left; but not if a batch before it is
    in what is left, or all of the history. What the property notes of `main` counts where what is
    left of the branch begins on `main`.

    All of the history is left where the oldest has no parent and the first sequence number. Without
    a parent alone, since some writers take it from what they expire (`Snapshot.is_first`), it began
    a history of its own where the snapshot that is noted is still in the table.
    """
    prefix = f"{STREAM_PREFIX}{batch.query_id}:"
    noted = {name: batch.marked(metadata, name) for name in (branch, MAIN_BRANCH)}
    if not any(noted.values()) and not _is_mentioned(metadata, f'"{prefix}'):
        return ()
    later, oldest = False, None
    for oldest in _history(metadata, branch):
        name = oldest.summary.get(COMMIT_ID, "")
        number = name.removeprefix(prefix)
        if name.startswith(prefix) and number.isdecimal():
            if int(number) < batch.batch_id:
                return ()
            later = True
    if oldest is None:
        return ()
    shared = oldest in _history(metadata, MAIN_BRANCH)
    marks = [mark for name, mark in noted.items() if mark and (name == branch or shared)]
    if oldest.parent_snapshot_id is None:
        there = [metadata.snapshot_or_none(snapshot) for _, snapshot, _ in marks]
        if oldest.sequence_number <= 1 or any(there):
            return ()
    expired = any(
        number >= batch.batch_id and sequence < oldest.sequence_number
        for number, _, sequence in marks
    )
    return (oldest,) if later or expired else ()


def _history(metadata: TableMetadata, branch: str) -> Iterator[Snapshot]:
    head = head_of(metadata, branch)
    return metadata.ancestors(None if head is None else head.snapshot_id)


def _is_mentioned(metadata: TableMetadata, text: str) -> bool:
    wanted = text.encode()
    return any(wanted in part for part in metadata.snapshots.raw_parts())
