package lakehouse.spark;

import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Batches of columns: vectors of the file as they are, or seen through the rows that are left. */
final class BatchReader extends FileReading {
    private ColumnarBatch batch;
    private BesideRows beside;

    BatchReader(DataFileSlice[] slices, DataFileReaderFactory factory) {
        super(slices, factory);
    }

    void begin() {
        beside = new BesideRows(factory.columns(), slice, details);
    }

    public Object get() {
        return batch;
    }

    boolean take(Object found) {
        ColumnarBatch read = (ColumnarBatch) found;
        if (factory.isPlain() && deleted == null && read.numCols() == factory.columns().length) {
            batch = read;
            return read.numRows() > 0;
        }
        OutputColumn[] columns = factory.columns();
        int[] left = null;
        if (deleted != null && !factory.showsDeleted()) {
            left = deleted.left(read.column(read.numCols() - 1), read.numRows());
            if (left != null && left.length == 0) {
                return false;
            }
        }
        int rows = left == null ? read.numRows() : left.length;
        ColumnVector[] shown = new ColumnVector[columns.length];
        for (int i = 0; i < columns.length; i++) {
            shown[i] = shown(columns[i], read, left, rows);
        }
        batch = new ColumnarBatch(shown, rows);
        return rows > 0;
    }

    private ColumnVector shown(OutputColumn column, ColumnarBatch read, int[] left, int rows) {
        ColumnVector found;
        if (column.kind.equals(OutputColumn.DATA)) {
            found = read.column(column.ordinal);
        } else if (column.kind.equals(OutputColumn.UUID)) {
            found = new UuidText(read.column(column.ordinal));
        } else if (column.kind.equals("_pos")) {
            found = read.column(column.positionOrdinal);
        } else if (column.kind.equals("_deleted")) {
            found = new IsDeleted(read.column(column.positionOrdinal), deleted);
        } else if (column.kind.equals("_row_id")) {
            found = new Lineage(read.column(column.ordinal), read.column(column.positionOrdinal),
                beside.number("first_row"));
        } else if (column.kind.equals("_last_updated_sequence_number")) {
            found = new Lineage(read.column(column.ordinal), null, beside.number("sequence"));
        } else {
            return beside.vector(column, rows, column.positionOrdinal < 0 ? null
                : seen(read.column(column.positionOrdinal), left));
        }
        return seen(found, left);
    }

    private static ColumnVector seen(ColumnVector vector, int[] left) {
        return left == null ? vector : new ChosenRows(vector, left);
    }
}
