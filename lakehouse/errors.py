"""Every error this library raises.

LakehouseError
 ├── InvalidInputError                what the caller passed cannot be used (a ValueError)
 │    ├── InvalidIdentifierError      a table or namespace name
 │    ├── InvalidSchemaError          a schema, a schema change, or data that does not fit one
 │    ├── InvalidPartitionSpecError   a partition spec or sort order term
 │    ├── InvalidExpressionError      a filter
 │    ├── InvalidLocationError        a location outside the warehouse, overlapping or malformed
 │    ├── InvalidPropertyError        a table or catalog property
 │    ├── InvalidStatementError       a statement about a table, or its evidence
 │    ├── InvalidViewError            a version of a view, or a change of one
 │    └── UnsupportedTypeError        a type one side cannot represent
 ├── UnsupportedFeatureError          a valid table uses what this version does not read or write
 ├── NotFoundError                    a LookupError
 │    ├── NoSuchNamespaceError
 │    ├── NoSuchTableError
 │    ├── NoSuchViewError
 │    ├── NoSuchSnapshotError
 │    ├── NoSuchRefError
 │    └── NoSuchFileError
 ├── AlreadyExistsError
 │    ├── NamespaceAlreadyExistsError
 │    ├── TableAlreadyExistsError
 │    ├── ViewAlreadyExistsError
 │    ├── RefAlreadyExistsError
 │    └── FileAlreadyExistsError
 ├── NamespaceNotEmptyError
 ├── CorruptMetadataError             a metadata file that is not what the spec says
 ├── CommitError
 │    ├── CommitConflictError         certainly not committed, another commit came first: retryable
 │    │    └── SnapshotExpiredError   what was read or decided on has expired; a NoSuchSnapshotError
 │    ├── ValidationConflictError     certainly not committed, an assumption failed: not retryable
 │    └── CommitStateUnknownError     may or may not have been committed: delete nothing
 ├── StorageError                     I/O failed; `retryable` says whether trying again can help
 ├── ForbiddenError                   the catalog's server does not let its caller do it
 ├── RequestRepeatedError             a request was carried out before
 ├── SparkLostError                   the Spark that a run used has ended: retryable
 └── MaintenanceRefusedError          a maintenance request that could lose data
"""

from __future__ import annotations

from typing import Literal, cast

Outcome = Literal["failed", "unknown"]


class LakehouseError(Exception):
    """The root of all errors that this library raises.

    >>> try:
    ...     lake.load_table("raw.nothing")
    ... except lh.LakehouseError as error:
    ...     print(type(error).__name__, error.retryable)
    NoSuchTableError False

    Args:
        message: what happened and what to do next, naming the table, file or value.
        context: machine-readable facts (table, snapshot_id, file, ...), never secrets.

    Attributes:
        commit_outcome: of the change that was under way (given with the context): "failed",
            certainly nothing was done; "unknown", nobody can tell; None, the error does not say.
        retryable: whether the same call can succeed later without any change by the caller.
    """

    retryable: bool = False

    def __init__(self, message: str, **context: object) -> None:
        super().__init__(message)
        self.message = message
        self.commit_outcome = cast("Outcome | None", context.pop("commit_outcome", None))
        self.context: dict[str, object] = context

    def __reduce__(self) -> tuple[object, ...]:
        return (
            _rebuild,
            (type(self), self.message, {**self.context, "outcome": self.commit_outcome}),
        )


def _rebuild(
    kind: type[LakehouseError], message: str, context: dict[str, object]
) -> LakehouseError:
    return kind(message, **context)


class InvalidInputError(LakehouseError, ValueError):
    """What the caller passed cannot be used.

    >>> events.scan(snapshot_id=1, as_of="2026-06-01")
    Traceback (most recent call last):
        ...
    lakehouse.errors.InvalidInputError: scan of raw.events: ...
    """


class InvalidIdentifierError(InvalidInputError):
    """A table or namespace name is empty, escapes its folder or holds forbidden characters.

    >>> lake.load_table("raw..events")
    Traceback (most recent call last):
        ...
    lakehouse.errors.InvalidIdentifierError: ...
    """


class InvalidSchemaError(InvalidInputError):
    """A schema, a schema change, or data that does not fit the table's schema.

    >>> events.append(pa.table({"colour": ["red"]}))
    Traceback (most recent call last):
        ...
    lakehouse.errors.InvalidSchemaError: column 'colour' of table raw.events ...
    """


class InvalidPartitionSpecError(InvalidInputError):
    """A partition spec or sort order term that cannot be applied."""


class InvalidExpressionError(InvalidInputError):
    """A filter that does not parse or does not bind to the schema.

    >>> events.scan(where="colour = 1")
    Traceback (most recent call last):
        ...
    lakehouse.errors.InvalidExpressionError: ...
    """


class InvalidLocationError(InvalidInputError):
    """A location that is malformed, outside the warehouse, or overlaps another table.

    >>> lake.create_table("raw.far", more.schema, location="file:///elsewhere")
    Traceback (most recent call last):
        ...
    lakehouse.errors.InvalidLocationError: ...
    """


class InvalidPropertyError(InvalidInputError):
    """A table or catalog property with an unusable value."""


class InvalidStatementError(InvalidInputError):
    """A statement about a table cannot be used: its claim, its evidence, or a name in it."""


class InvalidViewError(InvalidInputError):
    """A version of a view, or a change of one, that cannot be."""


class UnsupportedTypeError(InvalidInputError):
    """A type that the other side (Arrow, Spark, format version) cannot represent."""


class UnsupportedFeatureError(LakehouseError):
    """A valid table uses a feature that this version does not read or write."""


class NotFoundError(LakehouseError, LookupError):
    """Something that was named does not exist."""


class NoSuchNamespaceError(NotFoundError):
    """The namespace does not exist.

    >>> lake.list_tables("nowhere")
    Traceback (most recent call last):
        ...
    lakehouse.errors.NoSuchNamespaceError: ...
    """


class NoSuchTableError(NotFoundError):
    """The table does not exist.

    >>> lake.load_table("raw.nothing")
    Traceback (most recent call last):
        ...
    lakehouse.errors.NoSuchTableError: ...
    """


class NoSuchViewError(NotFoundError):
    """The view does not exist.

    >>> lake.load_view("raw.nothing")
    Traceback (most recent call last):
        ...
    lakehouse.errors.NoSuchViewError: ...
    """


class NoSuchSnapshotError(NotFoundError):
    """The snapshot does not exist, or was expired.

    >>> events.scan(snapshot_id=1).count()
    Traceback (most recent call last):
        ...
    lakehouse.errors.NoSuchSnapshotError: ...
    """


class NoSuchRefError(NotFoundError):
    """The branch or tag does not exist.

    >>> events.scan(ref="nowhere")
    Traceback (most recent call last):
        ...
    lakehouse.errors.NoSuchRefError: ...
    """


class NoSuchFileError(NotFoundError):
    """The file does not exist."""


class RowsNotFoundError(NotFoundError):
    """Rows that a change replaces are not in the table: it holds others than it was said to."""


class AlreadyExistsError(LakehouseError):
    """Something that was to be created exists."""


class NamespaceAlreadyExistsError(AlreadyExistsError):
    """A namespace of this name exists."""


class TableAlreadyExistsError(AlreadyExistsError):
    """A table of this name exists.

    >>> lake.create_table("raw.events", more.schema)
    Traceback (most recent call last):
        ...
    lakehouse.errors.TableAlreadyExistsError: ...
    """


class ViewAlreadyExistsError(AlreadyExistsError):
    """A view of this name exists; tables and views share their names.

    >>> _ = lake.create_view("raw.one", "SELECT 1 AS n", pa.schema({"n": pa.int32()}))
    >>> lake.create_table("raw.one", more.schema)
    Traceback (most recent call last):
        ...
    lakehouse.errors.ViewAlreadyExistsError: ...
    """


class RefAlreadyExistsError(AlreadyExistsError):
    """The branch or tag exists."""


class FileAlreadyExistsError(AlreadyExistsError):
    """A file that is created only if absent is there."""


class NamespaceNotEmptyError(LakehouseError):
    """The namespace still holds tables or namespaces."""


class CorruptMetadataError(LakehouseError):
    """A metadata file is not what the spec says it must be.

    >>> _ = Path(folder, "v1.metadata.json").write_text("{}")
    >>> lake.register_table("raw.damaged", f"{folder}/v1.metadata.json")
    Traceback (most recent call last):
        ...
    lakehouse.errors.CorruptMetadataError: ...
    """


class CommitError(LakehouseError):
    """A commit did not certainly succeed.

    >>> issubclass(lh.ValidationConflictError, lh.CommitError)
    True
    """


class CommitConflictError(CommitError):
    """Certainly not committed: another commit came first. Refresh, re-validate and try again.

    >>> lh.CommitConflictError.retryable
    True
    """

    retryable = True


class SnapshotExpiredError(CommitConflictError, NoSuchSnapshotError):
    """The snapshot that is read, or that a change was decided on, has expired meanwhile.

    Nothing was committed. Refresh or load the table, and do it again.

    >>> stale = lake.load_table("raw.events")
    >>> _ = events.append(more)
    >>> _ = events.expire_snapshots(older_than=dt.datetime.now(dt.UTC), retain_last=1)
    >>> stale.scan().count()
    Traceback (most recent call last):
        ...
    lakehouse.errors.SnapshotExpiredError: ...
    >>> stale.refresh().scan().count()
    4
    """


class ValidationConflictError(CommitError):
    """Certainly not committed: a concurrent commit broke an assumption of this operation.

    >>> stale = lake.load_table("raw.events")
    >>> _ = events.append(more)
    >>> stale.overwrite(more, where="user_id = 3")
    Traceback (most recent call last):
        ...
    lakehouse.errors.ValidationConflictError: ...
    """


class CommitStateUnknownError(CommitError):
    """The reply was lost: the commit may have happened.

    Nothing was cleaned up; look for the snapshot id, or write again with the same `commit_id`.

    >>> def load():
    ...     return events.append(more, commit_id="load-42")
    >>> try:
    ...     result = load()
    ... except lh.CommitStateUnknownError:
    ...     result = load()
    >>> load().replayed, events.scan().count()
    (True, 4)
    """


class StorageError(LakehouseError):
    """Reading or writing a storage failed.

    Attributes:
        retryable: True for time-outs and throttling, False for a full disk or a refused permission.
    """

    def __init__(self, message: str, *, retryable: bool = False, **context: object) -> None:
        super().__init__(message, **context)
        self.retryable = retryable

    def __reduce__(self) -> tuple[object, ...]:
        context = {**self.context, "commit_outcome": self.commit_outcome}
        return (_rebuild_storage, (self.message, self.retryable, context))


def _rebuild_storage(message: str, retryable: bool, context: dict[str, object]) -> StorageError:
    return StorageError(message, retryable=retryable, **context)


class ForbiddenError(LakehouseError):
    """The catalog's server knows who asks, and does not let them do it."""


class RequestRepeatedError(LakehouseError):
    """A request was carried out before, and is not carried out again."""


class SparkLostError(LakehouseError):
    """The Spark that a run used has ended, and what the run had it do may be half done.

    >>> SparkLostError("the JVM is gone").retryable
    True
    """

    retryable = True


class MaintenanceRefusedError(LakehouseError):
    """A maintenance request that could remove data still in use.

    >>> now = dt.datetime.now(dt.UTC)
    >>> events.remove_orphan_files(older_than=now)
    Traceback (most recent call last):
        ...
    lakehouse.errors.MaintenanceRefusedError: ...
    """
