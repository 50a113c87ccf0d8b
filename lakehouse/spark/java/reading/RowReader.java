package lakehouse.spark;

import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** Rows, where the session does not read Parquet by columns. */
final class RowReader extends FileReading {
    private InternalRow row;
    private BesideRows beside;

    RowReader(DataFileSlice[] slices, DataFileReaderFactory factory) {
        super(slices, factory);
    }

    void begin() {
        beside = new BesideRows(factory.columns(), slice, details);
    }

    public Object get() {
        return row;
    }

    boolean take(Object found) {
        InternalRow read = (InternalRow) found;
        OutputColumn[] columns = factory.columns();
        if (factory.isPlain() && deleted == null && read.numFields() == columns.length) {
            row = read;
            return true;
        }
        if (deleted != null && !factory.showsDeleted()
                && deleted.contains(read.getLong(read.numFields() - 1))) {
            return false;
        }
        Object[] values = new Object[columns.length];
        for (int i = 0; i < values.length; i++) {
            values[i] = value(columns[i], read);
        }
        row = new GenericInternalRow(values);
        return true;
    }

    private Object value(OutputColumn column, InternalRow read) {
        String kind = column.kind;
        if (kind.equals(OutputColumn.DATA)) {
            return read.isNullAt(column.ordinal) ? null : read.get(column.ordinal, column.type);
        }
        if (kind.equals(OutputColumn.UUID)) {
            return read.isNullAt(column.ordinal) ? null
                : UuidText.text(read.getBinary(column.ordinal));
        }
        if (kind.equals("_row_id")) {
            return lineage(column, read, "first_row", read.getLong(column.positionOrdinal));
        }
        if (kind.equals("_last_updated_sequence_number")) {
            return lineage(column, read, "sequence", 0L);
        }
        if (kind.equals("_pos")) {
            return Long.valueOf(read.getLong(column.positionOrdinal));
        }
        if (kind.equals("_deleted")) {
            return Boolean.valueOf(
                deleted != null && deleted.contains(read.getLong(column.positionOrdinal)));
        }
        return kind.equals("_metadata") ? metadata(column, read) : beside.value(column);
    }

    private Object lineage(OutputColumn column, InternalRow read, String detail, long more) {
        Number inherited = beside.number(detail);
        if (inherited == null) {
            return null;
        }
        return Long.valueOf(read.isNullAt(column.ordinal) ? inherited.longValue() + more
            : read.getLong(column.ordinal));
    }

    private InternalRow metadata(OutputColumn column, InternalRow read) {
        StructField[] fields = ((StructType) column.type).fields();
        Object[] values = new Object[fields.length];
        for (int i = 0; i < values.length; i++) {
            values[i] = fields[i].name().equals("row_index")
                ? Long.valueOf(read.getLong(column.positionOrdinal))
                : beside.fileField(fields[i].name());
        }
        return new GenericInternalRow(values);
    }
}
