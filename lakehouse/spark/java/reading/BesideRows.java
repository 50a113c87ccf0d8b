package lakehouse.spark;

import java.io.IOException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.sql.execution.vectorized.ColumnVectorUtils;
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.unsafe.types.UTF8String;

/** What is one value for all rows of a slice: the metadata columns of its file. */
final class BesideRows {
    private final DataFileSlice slice;
    private final Map details;

    BesideRows(OutputColumn[] columns, DataFileSlice slice, Map details) {
        this.slice = slice;
        this.details = details;
    }

    Number number(String detail) {
        return (Number) details.get(detail);
    }

    ColumnVector vector(OutputColumn column, int rows, ColumnVector positions) {
        if (column.kind.equals("_metadata")) {
            return new FileMetadata(this, (StructType) column.type, rows, positions);
        }
        return constant(column.type, value(column), rows);
    }

    /** Structs are filled here: before 4.3 Spark fills none. */
    static ConstantColumnVector constant(DataType type, Object value, int rows) {
        ConstantColumnVector made = new ConstantColumnVector(rows, type);
        if (type instanceof StructType && value != null) {
            StructField[] fields = ((StructType) type).fields();
            for (int i = 0; i < fields.length; i++) {
                Object field = ((InternalRow) value).get(i, fields[i].dataType());
                made.setChild(i, constant(fields[i].dataType(), field, rows));
            }
        } else {
            ColumnVectorUtils.populate(made, new GenericInternalRow(new Object[] {value}), 0);
        }
        return made;
    }

    /** The value of a metadata column, as Spark holds it. */
    Object value(OutputColumn column) {
        if (column.kind.equals("_file")) {
            return UTF8String.fromString(slice.location);
        }
        if (column.kind.equals(FileHash.COLUMN)) {
            return Long.valueOf(FileHash.of(slice.location));
        }
        if (column.kind.equals("_spec_id")) {
            return Integer.valueOf(number("spec").intValue());
        }
        return PartitionValues.row((StructType) column.type, (Map) details.get("partition"));
    }

    /** A field of Spark's `_metadata`; its `row_index` is that of a row. */
    Object fileField(String name) {
        if (name.equals("file_path")) {
            return UTF8String.fromString(slice.path().toUri().toString());
        }
        if (name.equals("file_name")) {
            return UTF8String.fromString(slice.path().getName());
        }
        if (name.equals("file_size")) {
            return Long.valueOf(slice.fileBytes);
        }
        if (name.equals("file_block_start")) {
            return Long.valueOf(slice.start);
        }
        if (name.equals("file_block_length")) {
            return Long.valueOf(slice.length);
        }
        if (name.equals("file_modification_time")) {
            return Long.valueOf(modified() * 1000L);
        }
        throw new IllegalArgumentException("_metadata has no field " + name);
    }

    private long modified() {
        try {
            Path path = slice.path();
            return path.getFileSystem(new Configuration())
                .getFileStatus(path)
                .getModificationTime();
        } catch (IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }
}
