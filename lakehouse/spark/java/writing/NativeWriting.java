package lakehouse.spark;

/** Files by Spark's own Parquet writer, in the JVM of the task. */
final class NativeWriting implements FileWriting {
    private final WriteOrder order;

    NativeWriting(WriteOrder order) {
        this.order = order;
    }

    public RowFiles open(int partition, long task) {
        return new DataFileWriter(order, partition, task);
    }

    public boolean lineage() {
        return order.lineage;
    }
}
