package lakehouse.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;

/** Makes the writers of tasks. */
final class RowWriterFactory implements DataWriterFactory {
    private final FileWriting writing;

    RowWriterFactory(FileWriting writing) {
        this.writing = writing;
    }

    public DataWriter createWriter(int partition, long task) {
        try {
            return new RowWriter(writing, partition, task);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
