package lakehouse.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.connector.write.DeltaBatchWrite;
import org.apache.spark.sql.connector.write.DeltaWrite;
import org.apache.spark.sql.connector.write.DeltaWriteBuilder;
import org.apache.spark.sql.connector.write.DeltaWriter;
import org.apache.spark.sql.connector.write.DeltaWriterFactory;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/** Positions of deleted rows and files of new ones, committed together. */
final class DeltaRowWrite extends LakehouseWrite implements DeltaWrite, DeltaBatchWrite {
    private final RowLevelDelta delta;

    DeltaRowWrite(RowLevelDelta delta) {
        super(delta.table.name(), delta.answerer, "write_plan");
        this.delta = delta;
    }

    /** Deletes by the locations of files. */
    Map written(WriterCommitMessage[] messages) {
        Map out = super.written(messages);
        Map locations = delta.filesRead();
        HashMap deletes = new HashMap();
        for (Object one : ((Map) out.get("deletes")).entrySet()) {
            Map.Entry entry = (Map.Entry) one;
            deletes.put(locations.get(entry.getKey()), entry.getValue());
        }
        out.put("deletes", deletes);
        return out;
    }

    public DeltaBatchWrite toBatch() {
        return this;
    }

    public DeltaWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
        return new Factory(writing());
    }

    static final class Builder implements DeltaWriteBuilder {
        private final RowLevelDelta delta;

        Builder(RowLevelDelta delta) {
            this.delta = delta;
        }

        public DeltaWrite build() {
            return new DeltaRowWrite(delta);
        }
    }

    static final class Factory implements DeltaWriterFactory {
        private final FileWriting writing;

        Factory(FileWriting writing) {
            this.writing = writing;
        }

        public DeltaWriter createWriter(int partition, long task) {
            try {
                return new DeltaRowWriter(writing, partition, task);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }
}
