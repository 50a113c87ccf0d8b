package lakehouse.spark;

import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * Batches of columns: vectors of the file as they are. Rows that are left are moved to their front;
 * what cannot be moved is seen through their numbers.
 */
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
        boolean[] moved = new boolean[read.numCols()];
        for (int i = 0; i < moved.length; i++) {
            moved[i] = left == null || RowsLeft.moved(read.column(i), left);
        }
        ColumnVector[] shown = new ColumnVector[columns.length];
        for (int i = 0; i < columns.length; i++) {
            shown[i] = shown(columns[i], read, left, moved, rows);
        }
        batch = new ColumnarBatch(shown, rows);
        return rows > 0;
    }

    private ColumnVector shown(
            OutputColumn column, ColumnarBatch read, int[] left, boolean[] moved, int rows) {
        ColumnVector own = column.ordinal < 0 ? null : seen(read, column.ordinal, left, moved);
        ColumnVector position = column.positionOrdinal < 0 ? null
            : seen(read, column.positionOrdinal, left, moved);
        if (column.kind.equals(OutputColumn.DATA)) {
            return own;
        }
        if (column.kind.equals(OutputColumn.UUID)) {
            return new UuidText(own);
        }
        if (column.kind.equals("_pos")) {
            return position;
        }
        if (column.kind.equals("_deleted")) {
            return new IsDeleted(position, deleted);
        }
        if (column.kind.equals("_row_id")) {
            return new Lineage(own, position, beside.number("first_row"));
        }
        if (column.kind.equals("_last_updated_sequence_number")) {
            return new Lineage(own, null, beside.number("sequence"));
        }
        return beside.vector(column, rows, position);
    }

    /** A column of the file, its rows moved already or not. */
    private static ColumnVector seen(
            ColumnarBatch read, int ordinal, int[] left, boolean[] moved) {
        ColumnVector vector = read.column(ordinal);
        return moved[ordinal] ? vector : new ChosenRows(vector, left);
    }
}
