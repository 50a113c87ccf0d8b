package lakehouse.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;

/** Makes the writers of tasks. */
final class RowWriterFactory implements DataWriterFactory {
    private final FileWriting writing;
    private final RowMapping mapping;

    /** `mapping` is null where rows are as the table has them. */
    RowWriterFactory(FileWriting writing, RowMapping mapping) {
        this.writing = writing;
        this.mapping = mapping;
    }

    public DataWriter createWriter(int partition, long task) {
        try {
            return mapping == null ? new RowWriter(writing, partition, task)
                : (RowWriter) new MappedRowWriter(writing, partition, task, mapping);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
