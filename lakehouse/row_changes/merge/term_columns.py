"""Terms of a MERGE computed on rows of its two sides."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema

from lakehouse.data.conversion.columns_by_id import FieldReader
from lakehouse.errors import InvalidExpressionError
from lakehouse.expressions.bound_filter import Bound, Term, Value
from lakehouse.expressions.filter_text import describe_term
from lakehouse.expressions.physical_comparison import Mask
from lakehouse.expressions.row_evaluation import evaluate, passing
from lakehouse.expressions.sql.typed_calls import type_of
from lakehouse.spec.schema.iceberg_types import paths_of
from lakehouse.spec.types.internal_values import internal_values


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
        self._readers: dict[bool, FieldReader] = {}

    def column(self, field_id: int) -> pa.Array:
        """The values of a field; those of the source have negative ids."""
        of_target = field_id > 0
        rows, schema = self._target if of_target else self._source
        if rows is None:
            raise AssertionError(f"field {field_id} is of a side that has no rows here")
        if of_target not in self._readers:
            self._readers[of_target] = FieldReader(paths_of(schema))
        return self._readers[of_target].read(rows, abs(field_id))

    def values(self, term: Term) -> pa.Array:
        """A term for each row. Raises InvalidExpressionError where it cannot be computed."""
        try:
            found = evaluate(term, self.column)
        except (pa.ArrowException, ArithmeticError) as error:
            raise InvalidExpressionError(
                f"cannot compute {describe_term(term)}: {error}"
            ) from error
        return found if isinstance(found, pa.Array) else pa.repeat(found, self.count)

    def where(self, condition: Bound) -> Mask:
        """The rows for which a condition is true. Raises InvalidExpressionError."""
        return passing(condition, self.column, self.count)

    def shown(self, term: Term) -> str:
        """The value of a term in the first row, as SQL."""
        kind = type_of(term)
        value = internal_values(self.values(term).slice(0, 1), kind)[0]
        return describe_term(Value(value, kind))

    def take(self, at: npt.NDArray[np.int64]) -> PairedRows:
        """The rows at some positions."""
        if len(at) == self.count and (at == np.arange(self.count)).all():
            return self
        indices = pa.array(at, pa.int64())
        (target, target_schema), (source, source_schema) = self._target, self._source
        return PairedRows(
            len(at),
            None if target is None else target.take(indices),
            target_schema,
            None if source is None else source.take(indices),
            source_schema,
        )
