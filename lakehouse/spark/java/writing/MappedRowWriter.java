package lakehouse.spark;

import java.io.IOException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;

/** Writes rows of other columns than the table's as rows of the table. */
final class MappedRowWriter extends RowWriter {
    private final UnsafeProjection projection;

    MappedRowWriter(FileWriting writing, int partition, long task, RowMapping mapping)
            throws IOException {
        super(writing, partition, task);
        this.projection = mapping.projection();
        this.projection.initialize(partition);
    }

    public void write(Object row) throws IOException {
        super.write(projection.apply((InternalRow) row));
    }
}
