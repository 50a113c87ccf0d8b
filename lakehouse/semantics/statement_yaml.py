"""Statements as YAML beside the code, reviewed like code.

```yaml
table: sales.orders
author: Sales Operations
statements:
- kind: grain
  text: One row per order.
  key: [order_id]
  entity: order
  evidence: {check: unique, columns: [order_id]}
- kind: unit
  column: total
  unit: EUR
  factor: 0.01
  text: Gross, in cents.
```

A file may hold several such documents, separated by `---`. `author` and `source` of the document
hold for statements that have none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from lakehouse.errors import InvalidStatementError
from lakehouse.semantics.claims import SLOTS, Kind, check_slots, iso_date, plain
from lakehouse.semantics.evidence import Check
from lakehouse.semantics.statements import Draft, digest_of

_TEXTS = ("id", "column", "text", "author", "source", "superseded_by")
_OWN = {*_TEXTS, "kind", "evidence", "expires", "table"}
_DOCUMENT = {"table", "author", "source", "statements"}


def parse_statements(text: str, where: str = "the document") -> list[Draft]:
    """Drafts of a YAML text.

    Args:
        text: one or several documents.
        where: names it in messages.

    Raises:
        InvalidStatementError: no YAML, not of this form, or two statements of one id.
    """
    try:
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.YAMLError as error:
        raise InvalidStatementError(
            f"{where} is no YAML: {' '.join(str(error).split())}"
        ) from error
    drafts = [draft for document in documents for draft in _document(document, where)]
    seen: set[str] = set()
    for draft in drafts:
        if draft.statement_id in seen:
            raise InvalidStatementError(f"{where}: two statements have the id {draft.statement_id}")
        seen.add(draft.statement_id)
    return drafts


def draft_of(written: Mapping[str, Any], where: str) -> Draft:
    """A draft of plain values, as `Draft.to_json` makes them. Raises InvalidStatementError."""
    table = written.get("table")
    if not isinstance(table, str) or not table:
        raise InvalidStatementError(f"{where}: a statement needs a table")
    kinds = ", ".join(Kind)
    try:
        kind = Kind(str(written.get("kind")))
    except ValueError:
        raise InvalidStatementError(
            f"{where}: {table} has a statement of kind {written.get('kind')!r}, not one of {kinds}"
        ) from None
    statement_id = written.get("id") or _made_up_id(table, kind, written)
    place = f"{where}: {statement_id}"
    for name in _TEXTS:
        if not isinstance(written.get(name, ""), (str, type(None))):
            raise InvalidStatementError(f"{place}: {name} must be text, not {written[name]!r}")
    evidence = written.get("evidence")
    if evidence is not None and not isinstance(evidence, Mapping):
        raise InvalidStatementError(f"{place}: evidence must be a mapping, not {evidence!r}")
    expires = written.get("expires")
    claim = {key: value for key, value in written.items() if key not in _OWN}
    return Draft(
        statement_id=str(statement_id),
        table=table,
        column=written.get("column"),
        kind=kind,
        claim=check_slots(SLOTS[kind], claim, str(kind), place),
        text=" ".join((written.get("text") or "").split()),
        author=written.get("author") or "",
        source=written.get("source") or "",
        evidence=None if evidence is None else Check.parse(plain(evidence), place),
        expires=None if expires is None else iso_date(expires, f"{place}: expires"),
        superseded_by=written.get("superseded_by"),
    )


def write_statements(drafts: Iterable[Draft]) -> str:
    """YAML that `parse_statements` reads, one document a table, in the order given."""
    by_table: dict[str, list[Draft]] = {}
    for draft in drafts:
        by_table.setdefault(draft.table, []).append(draft)
    documents = []
    for table, of_table in by_table.items():
        statements = [
            {key: value for key, value in statement.to_json().items() if key != "table"}
            for statement in of_table
        ]
        documents.append({"table": table, "statements": statements})
    return yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True, width=100)


def _document(document: Any, where: str) -> Iterator[Draft]:
    if not isinstance(document, Mapping) or set(document) - _DOCUMENT:
        raise InvalidStatementError(
            f"{where}: a document has the keys {', '.join(sorted(_DOCUMENT))}"
        )
    statements = document.get("statements") or []
    if not isinstance(statements, list):
        raise InvalidStatementError(f"{where}: statements must be a list")
    common = {key: document[key] for key in ("table", "author", "source") if key in document}
    for number, written in enumerate(statements, 1):
        if not isinstance(written, Mapping):
            raise InvalidStatementError(f"{where}: statement {number} must be a mapping")
        yield draft_of({**common, **written}, f"{where}, statement {number}")


def _made_up_id(table: str, kind: Kind, written: Mapping[str, Any]) -> str:
    """`sales.orders.total/unit`; more of one kind about one thing differ by what they claim."""
    place = ".".join(filter(None, [table, str(written.get("column") or "")]))
    if kind in _ONCE:
        return f"{place}/{kind}"
    meaning = {key: value for key, value in written.items() if key not in ("author", "source")}
    words = re.findall(r"[a-z0-9]+", str(meaning.get("name") or meaning.get("role") or "").lower())
    return f"{place}/{kind}/{'-'.join(words) or digest_of(plain(meaning))[:6]}"


_ONCE = (
    Kind.DESCRIPTION,
    Kind.GRAIN,
    Kind.UNIT,
    Kind.CODES,
    Kind.SYNONYMS,
    Kind.OWNER,
    Kind.DEPRECATION,
    Kind.SAMPLES,
)
