"""Terms of a MERGE computed on rows of its two sides."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema

from lakehouse.data.conversion.columns_by_id import column_at, find_path
from lakehouse.errors import InvalidExpressionError
from lakehouse.expressions.filter_terms import Term
from lakehouse.expressions.filter_text import describe_term
from lakehouse.expressions.row_evaluation import evaluate

Mask = npt.NDArray[np.bool_]


class PairedRows:
    """Rows of the target and of the source, one beside the other; either side may be absent.

    Args:
        count: how many.
        target: columns of the target, or None.
        target_schema: of `target`.
        source: columns of the source, or None.
        source_schema: of `source`.
    """

    def __init__(
        self,
        count: int,
        target: pa.Table | None,
        target_schema: Schema,
        source: pa.Table | None,
        source_schema: Schema,
    ) -> None:
        self.count = count
        self.target = target
        self._target = (target, target_schema)
        self._source = (source, source_schema)

    def column(self, field_id: int) -> pa.Array:
        """The values of a field; those of the source have negative ids."""
        rows, schema = self._target if field_id > 0 else self._source
        if rows is None:
            raise AssertionError(f"field {field_id} is of a side that has no rows here")
        return column_at(rows, find_path(schema, abs(field_id))[0])

    def values(self, term: Term) -> pa.Array:
        """A term for each row. Raises InvalidExpressionError where it cannot be computed."""
        try:
            found = evaluate(term, self.column)
        except (pa.ArrowException, ArithmeticError) as error:
            raise InvalidExpressionError(
                f"cannot compute {describe_term(term)}: {error}"
            ) from error
        return found if isinstance(found, pa.Array) else pa.repeat(found, self.count)

    def where(self, condition: Term | None) -> Mask:
        """The rows for which a condition is true; None is every row."""
        if condition is None:
            return np.ones(self.count, bool)
        found = self.values(condition)
        if pa.types.is_null(found.type):
            return np.zeros(self.count, bool)
        return np.asarray(found.fill_null(False)).astype(bool)

    def take(self, rows: npt.NDArray[np.int64] | Mask) -> PairedRows:
        """Some of the rows: where a mask is true, or at positions."""
        at = np.flatnonzero(rows) if rows.dtype == bool else rows
        indices = pa.array(at, pa.int64())
        (target, target_schema), (source, source_schema) = self._target, self._source
        return PairedRows(
            len(at),
            None if target is None else target.take(indices),
            target_schema,
            None if source is None else source.take(indices),
            source_schema,
        )
