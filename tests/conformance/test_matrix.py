"""Conformance both ways over the matrix of `matrix.py`: equal rows, equal files, equal snapshots.

Where a reader cannot do a cell, the cell says why and the refusal itself is the test, so that
nobody forgets it when the reader learns.
"""

from __future__ import annotations

import dataclasses

import polars as pl
import pyarrow as pa
import pytest
from polars.exceptions import PanicException
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable, Table
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, MonthTransform
from pyiceberg.types import DoubleType, IntegerType, LongType, StringType

import lakehouse as lh
from tests.conformance.matrix import (
    CELLS,
    OLD,
    SPECS,
    Cell,
    build,
    deleted_ids,
    first_rows,
    in_cells,
    rows_of,
    same_rows,
    second_batch,
)

V1_CELLS = tuple(dataclasses.replace(cell, version=1) for cell in CELLS if cell.version == 2)
DAFT_VECTORS = "Daft opens the Puffin file of a deletion vector as Parquet"
DAFT_DROPPED = "Daft does not step over a dropped column in the middle of a file, whoever wrote it"
POLARS_OLD = "Polars reads every snapshot with the newest schema, and panics when that differs"


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """The tables of all cells, each made when it is first asked for."""
    catalog = lh.load_catalog(f"file://{tmp_path_factory.mktemp('ours')}")
    made: dict[Cell, lh.Table] = {}

    def table(cell: Cell) -> lh.Table:
        if cell not in made:
            made[cell] = build(catalog, cell)
        return made[cell]

    return table


every_cell = in_cells()


def first_id(table: lh.Table) -> int:
    return table.snapshots()[0].snapshot_id


@every_cell
def test_we_read_what_we_write(tables, cell):
    table = tables(cell)
    assert same_rows(table.scan().to_arrow().to_pylist(), rows_of(cell))
    assert (
        table.scan().to_arrow().schema.remove_metadata()
        == table.scan().to_batches().read_all().schema.remove_metadata()
    )
    assert same_rows(table.scan(snapshot_id=first_id(table)).to_arrow().to_pylist(), first_rows())


@every_cell
def test_pyiceberg_reads_ours(tables, cell):
    ours = tables(cell)
    theirs = StaticTable.from_metadata(ours.metadata_location)
    assert same_rows(theirs.scan().to_arrow().to_pylist(), rows_of(cell))
    assert same_rows(theirs.scan(snapshot_id=first_id(ours)).to_arrow().to_pylist(), first_rows())
    planned = {
        t.file.file_path: {d.file_path for d in t.delete_files} for t in theirs.scan().plan_files()
    }
    deletes = {
        t.data_file.file_path: {d.file_path for d in t.deletes} for t in ours.scan().plan().tasks
    }
    if cell.version == 2:
        assert planned == deletes
    else:
        # pyiceberg gives a file the deletion vectors of its neighbours too, and drops them when it
        # reads
        assert planned.keys() == deletes.keys()
        assert all(deletes[path] <= planned[path] for path in planned)
    assert [
        (s.snapshot_id, s.parent_snapshot_id, s.sequence_number, s.timestamp_ms)
        for s in theirs.snapshots()
    ] == [
        (s.snapshot_id, s.parent_snapshot_id, s.sequence_number, s.timestamp_ms)
        for s in ours.snapshots()
    ]


@every_cell
def test_duckdb_reads_ours(tables, duck, cell):
    ours = tables(cell)
    location = ours.metadata_location
    rows = duck.execute("SELECT * FROM iceberg_scan(?)", [location]).to_arrow_table().to_pylist()
    assert same_rows(rows, rows_of(cell))
    travel = f"SELECT * FROM iceberg_scan('{location}', snapshot_from_id = {first_id(ours)})"
    assert same_rows(duck.sql(travel).to_arrow_table().to_pylist(), first_rows())
    listed = duck.execute(
        "SELECT file_path FROM iceberg_metadata(?) WHERE status <> 'DELETED'", [location]
    ).fetchall()
    assert {path for (path,) in listed} == set(ours.inspect.files()["file_path"].to_pylist())
    snapshots = duck.execute(
        "SELECT sequence_number, snapshot_id FROM iceberg_snapshots(?)", [location]
    ).fetchall()
    assert sorted(snapshots) == [(s.sequence_number, s.snapshot_id) for s in ours.snapshots()]


# Polars calls it in pyiceberg
@pytest.mark.filterwarnings("ignore:Call to to_vector:DeprecationWarning")
@every_cell
def test_polars_reads_ours(tables, cell):
    ours = tables(cell)
    theirs = StaticTable.from_metadata(ours.metadata_location)
    assert same_rows(
        pl.scan_iceberg(theirs, reader_override="native").collect().to_dicts(), rows_of(cell)
    )
    old = pl.scan_iceberg(theirs, reader_override="native", snapshot_id=first_id(ours))
    if cell.evolved:
        with pytest.raises(PanicException):
            pytest.fail(f"{POLARS_OLD}: no longer, it read {len(old.collect())} rows")
    else:
        assert same_rows(old.collect().to_dicts(), first_rows())


@every_cell
def test_daft_reads_ours(tables, cell):
    import daft

    ours = tables(cell)
    theirs = StaticTable.from_metadata(ours.metadata_location)
    reason = (
        DAFT_VECTORS
        if cell.version == 3 and cell.deletes
        else DAFT_DROPPED
        if cell.schema == "dropped"
        else None
    )
    if reason is None:
        assert same_rows(daft.read_iceberg(theirs).to_pylist(), rows_of(cell))
    else:
        with pytest.raises(daft.exceptions.DaftCoreException):
            pytest.fail(
                f"{reason}: no longer, it read {len(daft.read_iceberg(theirs).to_pylist())} rows"
            )
    assert same_rows(
        daft.read_iceberg(theirs, snapshot_id=first_id(ours)).to_pylist(), first_rows()
    )


# What others write


@pytest.fixture(scope="module")
def pyiceberg_catalog(tmp_path_factory):
    folder = tmp_path_factory.mktemp("theirs")
    catalog = SqlCatalog(
        "theirs", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse"
    )
    catalog.create_namespace("m")
    yield catalog
    catalog.engine.dispose()


def written_by_pyiceberg(catalog: SqlCatalog, cell: Cell) -> Table:
    table = catalog.create_table(f"m.{cell}", OLD, properties={"format-version": str(cell.version)})
    with table.update_spec() as spec:
        if cell.spec == "day":
            spec.add_field("ts", DayTransform(), "ts_day")
        elif cell.spec == "region":
            spec.add_field("region", IdentityTransform(), "region")
    table.append(pa.Table.from_pylist(first_rows(), schema=OLD))
    if cell.evolved:
        _evolve(table, cell)
    if cell.new_spec:
        with table.update_spec() as spec:
            if cell.spec == "day":
                spec.remove_field("ts_day").add_field("ts", MonthTransform(), "ts_month")
            elif cell.spec == "unpartitioned":
                spec.add_field("region", IdentityTransform(), "region")
            else:
                spec.add_field("id", BucketTransform(4), "id_bucket")
    table.append(second_batch(cell))
    if cell.deletes:
        ids = ", ".join(str(number) for number in deleted_ids(cell))
        table.delete(f"id in ({ids})")
    return table


def _evolve(table: Table, cell: Cell) -> None:
    with table.update_schema() as schema:
        schema.rename_column("amount", "price")
        schema.rename_column(("place", "city"), "town")
        schema.add_column(("place", "country"), StringType())
        schema.update_column("id", LongType())
        schema.update_column(("place", "zip"), LongType())
        if cell.schema == "grown":
            schema.add_column("size", IntegerType())
        else:
            schema.delete_column("note")
    with table.update_schema() as schema:
        schema.update_column("price", DoubleType())
        if cell.schema == "dropped":
            schema.add_column("note", IntegerType())


@in_cells([*V1_CELLS, *CELLS])
def test_we_read_what_pyiceberg_writes(pyiceberg_catalog, readers, cell):
    """Also v1 tables, which are made v2 before we write."""
    if cell.version == 3:
        with pytest.raises(NotImplementedError, match="V3"):
            written_by_pyiceberg(pyiceberg_catalog, cell)
        return
    if cell.version == 1 and cell.spec == "day" and cell.new_spec:
        # v1 keeps a removed field as void, and then pyiceberg does not write two fields of one
        # column
        with pytest.raises(ValueError, match="redundant partitions"):
            written_by_pyiceberg(pyiceberg_catalog, cell)
        return
    theirs = written_by_pyiceberg(pyiceberg_catalog, cell)
    ours = readers.register_table(f"py.{cell}", theirs.metadata_location)
    assert same_rows(ours.scan().to_arrow().to_pylist(), rows_of(cell))
    assert same_rows(ours.scan(snapshot_id=first_id(ours)).to_arrow().to_pylist(), first_rows())
    assert sorted(f.file_path for f in ours.scan().plan().files) == sorted(
        t.file.file_path for t in theirs.scan().plan_files()
    )
    assert [(s.snapshot_id, s.sequence_number) for s in ours.snapshots()] == [
        (s.snapshot_id, s.sequence_number) for s in theirs.snapshots()
    ]
    assert ours.metadata.format_version == cell.version
    again = second_batch(cell)
    if cell.version == 1:
        ours.set_properties({"format-version": "2"})
    ours.append(again)
    expected = [*rows_of(cell), *again.to_pylist()]
    assert ours.metadata.format_version == 2
    assert same_rows(ours.scan().to_arrow().to_pylist(), expected)
    assert same_rows(ours.scan(snapshot_id=first_id(ours)).to_arrow().to_pylist(), first_rows())
    assert same_rows(
        StaticTable.from_metadata(ours.metadata_location).scan().to_arrow().to_pylist(), expected
    )


def test_we_read_what_duckdb_copies(tmp_path, duck, readers):
    """`COPY ... (FORMAT iceberg)` makes one snapshot without a catalog.

    The rest is in test_duckdb_writes.py.
    """
    folder = tmp_path / "table"
    duck.register("rows", pa.Table.from_pylist(first_rows(), schema=OLD))
    duck.sql(f"COPY rows TO '{folder}' (FORMAT iceberg)")
    (metadata,) = (folder / "metadata").glob("*.metadata.json")
    ours = readers.register_table("duck.copied", str(metadata))
    assert ours.metadata.format_version == 2
    assert same_rows(ours.scan().to_arrow().to_pylist(), first_rows())
    with ours.update_partition_spec() as spec:
        spec.add("region")
    ours.append(pa.Table.from_pylist(first_rows(), schema=OLD))
    ours.delete("id = 2")
    expected = [row for row in [*first_rows(), *first_rows()] if row["id"] != 2]
    assert same_rows(readers.load_table("duck.copied").scan().to_arrow().to_pylist(), expected)


def test_the_matrix_is_whole():
    assert len({str(cell) for cell in CELLS}) == len(CELLS) == 2 * len(SPECS) * 3 * 2 * 2
