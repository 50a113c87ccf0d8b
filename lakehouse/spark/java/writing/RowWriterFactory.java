package lakehouse.spark;

import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;

/** Makes the writers of tasks. */
final class RowWriterFactory implements DataWriterFactory {
    private final WriteOrder order;

    RowWriterFactory(WriteOrder order) {
        this.order = order;
    }

    public DataWriter createWriter(int partition, long task) {
        return new RowWriter(order, partition, task);
    }
}
