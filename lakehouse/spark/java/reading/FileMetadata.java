package lakehouse.spark;

import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;

/** The column `_metadata`, as Spark has it for its own files. */
final class FileMetadata extends DelegatingVector {
    private final ColumnVector[] fields;

    FileMetadata(BesideRows beside, StructType type, int rows, ColumnVector positions) {
        super(type, positions);
        StructField[] asked = type.fields();
        fields = new ColumnVector[asked.length];
        for (int i = 0; i < asked.length; i++) {
            fields[i] = asked[i].name().equals("row_index") ? positions
                : BesideRows.constant(asked[i].dataType(), beside.fileField(asked[i].name()), rows);
        }
    }

    int at(int row) {
        return row;
    }

    public boolean hasNull() {
        return false;
    }

    public int numNulls() {
        return 0;
    }

    public boolean isNullAt(int row) {
        return false;
    }

    public ColumnVector getChild(int ordinal) {
        return fields[ordinal];
    }
}
