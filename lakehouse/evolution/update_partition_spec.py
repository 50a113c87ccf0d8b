"""Changing how future files are partitioned. Files there keep the spec they were written with."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import VoidTransform

from lakehouse.errors import InvalidPartitionSpecError
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.table_updates import (
    AddPartitionSpec,
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertLastAssignedPartitionId,
    AssertTableUUID,
    Changes,
    Requirement,
    SetDefaultSpec,
)
from lakehouse.spec.partitioning.compatibility import check_spec
from lakehouse.spec.partitioning.partition_terms import Term, check_field_name, parse_term


class UpdatePartitionSpec:
    """Collects changes of the default partition spec; `changes()` gives them as one commit.

    Fields are given as terms (`day(ts)`, `bucket(16, id)`, `region`, each with ` as name` or
    without), fields that exist also by their name. A field that an earlier spec had gets its id and
    name back; other ids are never used twice. In v1 tables a removed field stays as `void`. What
    cannot be applied raises InvalidPartitionSpecError.
    """

    def __init__(self, metadata: TableMetadata) -> None:
        self._metadata = metadata
        self._schema = metadata.schema()
        self._base = metadata.spec()
        self._fields = list(self._base.fields)
        self._added: list[tuple[Term, int]] = []
        self._voided: dict[int, PartitionField] = {}
        self._last_id = metadata.last_partition_id

    def add(self, term: str, name: str | None = None) -> UpdatePartitionSpec:
        """Add a field at the end.

        Args:
            term: such as "day(ts)".
            name: its name; Iceberg's default if not given (`ts_day`, `id_bucket_16`).
        """
        parsed = parse_term(term, self._schema)
        wanted = name or parsed.alias
        active = [field for field in self._fields if not isinstance(field.transform, VoidTransform)]
        for field in active:
            if (field.source_id, field.transform) == (parsed.source_id, parsed.transform):
                raise InvalidPartitionSpecError(f"{term!r} is there already, as {field.name!r}.")
        for other, field_id in self._added:
            if other.dedup_key() == parsed.dedup_key() and any(
                field.field_id == field_id for field in active
            ):
                raise InvalidPartitionSpecError(
                    f"{term!r} is redundant beside {other.transform} of {other.column!r}."
                )
        restored = self._restore(parsed, wanted)
        if restored is not None:
            return self
        field = self._new_field(parsed, wanted)
        self._make_room(field.name)
        check_field_name(field.name, parsed, self._schema)
        check_spec(PartitionSpec(field, spec_id=0), self._schema)
        self._fields.append(field)
        self._last_id = max(self._last_id, field.field_id)
        self._added.append((parsed, field.field_id))
        return self

    def remove(self, field: str) -> UpdatePartitionSpec:
        """Remove a field, given by name or by term."""
        old = self._find(field)
        position = self._fields.index(old)
        was_there = any(base.field_id == old.field_id for base in self._base.fields)
        if self._metadata.format_version == 1 and was_there:
            self._voided[old.field_id] = old
            self._fields[position] = PartitionField(
                old.source_id, old.field_id, VoidTransform(), old.name
            )
        else:
            del self._fields[position]
        return self

    def rename(self, field: str, new_name: str) -> UpdatePartitionSpec:
        """Give a field, named or described by its term, another name; its id stays."""
        old = self._find(field)
        if new_name == old.name:
            return self
        if not new_name:
            raise InvalidPartitionSpecError("A partition field needs a name.")
        self._make_room(new_name)
        column = self._schema.find_column_name(old.source_id) or ""
        check_field_name(new_name, Term(column, old.source_id, old.transform), self._schema)
        self._fields[self._fields.index(old)] = PartitionField(
            old.source_id, old.field_id, old.transform, new_name
        )
        return self

    def replace(self, old: str, new: str, name: str | None = None) -> UpdatePartitionSpec:
        """Remove one field and add another: `replace("month(ts)", "day(ts)")`."""
        before = (list(self._fields), dict(self._voided))
        self.remove(old)
        try:
            return self.add(new, name)
        except InvalidPartitionSpecError:
            self._fields, self._voided = before
            raise

    def set(self, *terms: str) -> UpdatePartitionSpec:
        """Partition by exactly these terms; fields that there are already keep ids and names."""
        wanted = {(t.source_id, str(t.transform)): t for t in self._parsed(terms)}
        for field in list(self._fields):
            kept = wanted.get((field.source_id, str(field.transform)))
            if kept is None and not isinstance(field.transform, VoidTransform):
                self.remove(field.name)
            elif kept is not None and kept.alias:
                self.rename(field.name, kept.alias)
        there = {(field.source_id, str(field.transform)) for field in self._fields}
        for term, parsed in zip(terms, self._parsed(terms), strict=True):
            if (parsed.source_id, str(parsed.transform)) not in there:
                self.add(term)
        return self

    def spec(self) -> PartitionSpec:
        """The spec as it is now; its id is that of an equivalent one if the table has one."""
        for known in self._metadata.partition_specs:
            if known.compatible_with(PartitionSpec(*self._fields, spec_id=known.spec_id)):
                return known
        return PartitionSpec(*self._fields, spec_id=max(self._metadata.specs()) + 1)

    def changes(self) -> Changes:
        """Requirements and updates; empty when the spec is as it was.

        A concurrent change of spec or schema conflicts.
        """
        spec = self.spec()
        if spec.spec_id == self._base.spec_id:
            return Changes()
        requirements: tuple[Requirement, ...] = (
            AssertTableUUID(self._metadata.table_uuid),
            AssertCurrentSchemaId(self._metadata.current_schema_id),
            AssertDefaultSpecId(self._metadata.default_spec_id),
            AssertLastAssignedPartitionId(self._metadata.last_partition_id),
        )
        if spec.spec_id in self._metadata.specs():
            return Changes(requirements, (SetDefaultSpec(spec.spec_id),))
        return Changes(requirements, (AddPartitionSpec(spec), SetDefaultSpec()))

    def _parsed(self, terms: Sequence[str]) -> list[Term]:
        return [parse_term(term, self._schema) for term in terms]

    def _find(self, text: str) -> PartitionField:
        active = [field for field in self._fields if not isinstance(field.transform, VoidTransform)]
        for field in active:
            if field.name == text:
                return field
        known = ", ".join(field.name for field in active) or "none"
        try:
            term = parse_term(text, self._schema)
        except InvalidPartitionSpecError as error:
            raise InvalidPartitionSpecError(
                f"There is no partition field {text!r}; there are {known}."
            ) from error
        for field in active:
            if (field.source_id, field.transform) == (term.source_id, term.transform):
                return field
        raise InvalidPartitionSpecError(f"There is no partition field {text!r}; there are {known}.")

    def _restore(self, term: Term, name: str | None) -> PartitionField | None:
        """v1: a field removed in this change and added again is as it was."""
        for field_id, field in self._voided.items():
            if (field.source_id, field.transform) == (term.source_id, term.transform) and name in (
                None,
                field.name,
            ):
                position = next(i for i, now in enumerate(self._fields) if now.field_id == field_id)
                self._fields[position] = field
                del self._voided[field_id]
                return field
        return None

    def _new_field(self, term: Term, name: str | None) -> PartitionField:
        """A field of an earlier spec with this source, transform and name (if given), or new."""
        taken = {field.field_id for field in self._fields}
        if self._metadata.format_version > 1:
            for spec in reversed(self._metadata.partition_specs):
                for field in spec.fields:
                    same = (field.source_id, field.transform) == (term.source_id, term.transform)
                    if same and field.field_id not in taken and name in (None, field.name):
                        return field
        return PartitionField(
            term.source_id, self._last_id + 1, term.transform, name or term.evolved_name()
        )

    def _make_room(self, name: str) -> None:
        """Refuse a name that is taken; a void field gives way."""
        for position, field in enumerate(self._fields):
            if field.name != name:
                continue
            if not isinstance(field.transform, VoidTransform):
                raise InvalidPartitionSpecError(f"There is a partition field {name!r} already.")
            self._fields[position] = PartitionField(
                field.source_id, field.field_id, field.transform, f"{name}_{field.field_id}"
            )
