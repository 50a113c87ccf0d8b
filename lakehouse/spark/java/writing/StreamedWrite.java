package lakehouse.spark;

import java.util.HashMap;
import java.util.Map;
import java.util.UUID;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution;

/** One batch of a stream, written by tasks as any other rows (`stream_batches.py`). */
final class StreamedWrite implements StreamingWrite {
    private final LakehouseWrite write;

    StreamedWrite(LakehouseWrite write) {
        this.write = write;
    }

    /** Which stream a write belongs to, and how it changes the table; null for any other write. */
    static Map stream(LogicalWriteInfo info) {
        SparkSession session = SparkSession.active();
        // in `foreachBatch` this thread is the stream's, but the write has an id of its own
        if (!info.queryId().equals(
                session.sparkContext().getLocalProperty("sql.streaming.queryId"))) {
            return null;
        }
        StreamExecution execution = (StreamExecution) session.sharedState()
            .activeStreamingQueries().get(UUID.fromString(info.queryId()));
        HashMap out = new HashMap();
        out.put("query", info.queryId());
        out.put("output_mode", execution.outputMode().toString());
        return out;
    }

    public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo info) {
        return new Factory(write.createBatchWriterFactory(info));
    }

    public boolean useCommitCoordinator() {
        return true;
    }

    public void commit(long batch, WriterCommitMessage[] messages) {
        write.commit(messages, batch);
    }

    public void abort(long batch, WriterCommitMessage[] messages) {
        write.abort(messages);
    }

    public String toString() {
        return write.description();
    }

    static final class Factory implements StreamingDataWriterFactory {
        private final DataWriterFactory tasks;

        Factory(DataWriterFactory tasks) {
            this.tasks = tasks;
        }

        public DataWriter createWriter(int partition, long task, long batch) {
            return tasks.createWriter(partition, task);
        }
    }
}
