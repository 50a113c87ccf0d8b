"""A scan as a dataset of pyarrow: engines ask it for columns and filters, query by query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NoReturn, Protocol, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from lakehouse.errors import UnsupportedFeatureError
from lakehouse.expressions.arrow_expressions import understood
from lakehouse.expressions.bound_filter import conjunction
from lakehouse.expressions.filter_binding import bind
from lakehouse.scan.planner import ScanPlan, ScanRequest, bound_request
from lakehouse.scan.reports.listeners import Listeners
from lakehouse.spec.types.arrow_types import schema_to_arrow
from lakehouse.storage.storage_protocol import Storage


class Scan(Protocol):
    """What engines need of a `TableScan`, whose attributes these are."""

    @property
    def name(self) -> str: ...
    @property
    def request(self) -> ScanRequest: ...
    @property
    def storage(self) -> Storage: ...
    @property
    def listeners(self) -> Listeners: ...
    @property
    def limit(self) -> int | None: ...
    @property
    def only(self) -> frozenset[str] | None: ...

    def plan(self) -> ScanPlan: ...
    def to_batches(self) -> pa.RecordBatchReader: ...


def narrowed(scan: Scan, **changes: object) -> Scan:
    """The scan with attributes replaced."""
    return cast("Scan", replace(cast("Any", scan), **changes))


class ScanDataset(pads.Dataset):  # type: ignore[misc]  # pyarrow ships no types
    """Rows of a scan, planned again for each question, with its columns and filter.

    Args:
        scan: the rows that there are.
        failures: where errors of reading are kept, too; engines pass on their text alone.
    """

    def __init__(self, scan: Scan, failures: list[Exception] | None = None) -> None:
        self._scan = scan
        self._failures = [] if failures is None else failures
        self._projected = bound_request(scan.request)[0]
        self._schema = schema_to_arrow(self._projected)

    @property
    def schema(self) -> pa.Schema:
        """Columns and types."""
        return self._schema

    # The name is pyarrow's.
    def get_fragments(self, filter: Any = None) -> Iterator[_Fragment]:  # noqa: A002, ARG002
        """The whole scan as one part."""
        yield _Fragment(self)

    def scanner(
        self,
        columns: Sequence[str] | Mapping[str, Any] | None = None,
        filter: Any = None,  # noqa: A002 - pyarrow's name
        **_: Any,
    ) -> pads.Scanner:
        """Rows that pass a filter, which skips files and row groups as that of a scan does.

        What of a filter has no counterpart in `scan(where=...)`, pyarrow applies to the rows. All
        else means what it does in SQL and in engines: NaN is above every number, and a null is
        neither in a list nor not in it.

        Args:
            columns: names, or expressions by name.
            filter: an expression of pyarrow.
        """
        names = self._schema.names
        selected = list(names if columns is None or isinstance(columns, Mapping) else columns)
        # with `_deleted` come the deleted rows
        needed = {*selected, *({"_deleted"} & set(names))}
        if isinstance(filter, pa.BooleanScalar):  # DataFusion: of conditions that cannot hold
            filter = pc.scalar(filter)  # noqa: A001
        rest, request = filter, self._scan.request
        if filter is not None and self._scan.limit is None:
            schema = request.schema
            known = understood(filter, schema)
            here = bind(request.where, schema, case_sensitive=request.case_sensitive)
            request = replace(request, where=conjunction((here, known.where)))
            rest = None if known.whole else filter
            needed |= set() if known.whole else known.columns or set(names)
        elif filter is not None:
            needed = set(names)
        if request.select is None or set(request.select) == set(names):
            request = replace(
                request, select=[name for name in names if name in needed] or names[:1]
            )
        scan = narrowed(self._scan, request=request)
        schema = schema_to_arrow(bound_request(request)[0])
        rows = pa.RecordBatchReader.from_batches(schema, self._batches(scan))
        shown = columns if isinstance(columns, Mapping) else selected
        return pads.Scanner.from_batches(rows, columns=shown, filter=rest)

    def to_batches(
        self, columns: Sequence[str] | Mapping[str, Any] | None = None, **arguments: Any
    ) -> Iterator[pa.RecordBatch]:
        """As `scanner(...).to_batches()`, but for no columns the first one.

        Polars takes a batch without columns for one without rows.
        """
        some = self._schema.names[:1] if columns is not None and not columns else columns
        yield from self.scanner(some, **arguments).to_batches()

    def filter(self, expression: Any) -> NoReturn:  # noqa: ARG002 - pyarrow's
        """Not offered. Raises UnsupportedFeatureError."""
        self._refuse("filter", "give the filter to scan(where=...)")

    def replace_schema(self, schema: pa.Schema) -> NoReturn:  # noqa: ARG002 - pyarrow's
        """Not offered. Raises UnsupportedFeatureError."""
        self._refuse("replace_schema", "give the columns to scan(select=...)")

    def sort_by(self, sorting: Any, **_: Any) -> NoReturn:  # noqa: ARG002 - pyarrow's
        """Not offered. Raises UnsupportedFeatureError."""
        self._refuse("sort_by", "sort to_table()")

    def join(self, *_: Any, **__: Any) -> NoReturn:
        """Not offered. Raises UnsupportedFeatureError."""
        self._refuse("join", "join to_table()")

    def join_asof(self, *_: Any, **__: Any) -> NoReturn:
        """Not offered. Raises UnsupportedFeatureError."""
        self._refuse("join_asof", "join to_table()")

    @property
    def partition_expression(self) -> NoReturn:
        """Not offered. Raises UnsupportedFeatureError."""
        self._refuse("partition_expression", "the plan knows the partitions")

    def _refuse(self, method: str, instead: str) -> NoReturn:
        """Own methods of pyarrow reach for files that it does not know, and end the process."""
        raise UnsupportedFeatureError(
            f"{self._scan.name}: a scan's dataset has no {method}: {instead}",
            table=self._scan.name,
        )

    def _batches(self, scan: Scan) -> Iterator[pa.RecordBatch]:
        """The rows; planned with the first, since DataFusion asks twice and reads once.

        An error is kept for the caller: DataFusion passes on its text alone, with a traceback.
        """
        try:
            # planning may use DataFusion, whose runtime refuses to be entered again from a thread
            # that it called us on
            with ThreadPoolExecutor(max_workers=1, thread_name_prefix="plan") as elsewhere:
                elsewhere.submit(scan.plan).result()
            yield from scan.to_batches()
        except Exception as error:
            self._failures.append(error)
            raise


class _Fragment:
    def __init__(self, owner: ScanDataset) -> None:
        self._owner = owner

    def scanner(self, _schema: pa.Schema | None = None, **arguments: Any) -> pads.Scanner:
        return self._owner.scanner(**arguments)
