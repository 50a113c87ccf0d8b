package lakehouse.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.CompositeReadLimit;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReadMaxBytes;
import org.apache.spark.sql.connector.read.streaming.ReadMaxFiles;
import org.apache.spark.sql.connector.read.streaming.ReadMaxRows;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;

/** Rows of a table as they come, or all changes, in batches that Python plans (`row_streams.py`). */
final class RowStream
        implements MicroBatchStream, ReportsSourceMetrics, SupportsTriggerAvailableNow {
    private final String name;
    private final Answerer answerer;
    private final List columns;
    private WorkerReaderFactory factory = new WorkerReaderFactory();

    RowStream(String name, Answerer answerer, List columns) {
        this.name = name;
        this.answerer = answerer;
        this.columns = columns;
    }

    public Offset initialOffset() {
        return new Position(answerer.text("initial", null));
    }

    public Offset deserializeOffset(String json) {
        return new Position(json);
    }

    public ReadLimit getDefaultReadLimit() {
        Map told = answerer.map("limits", null);
        ArrayList limits = new ArrayList();
        if (told.containsKey("files")) {
            limits.add(ReadLimit.maxFiles(((Number) told.get("files")).intValue()));
        }
        if (told.containsKey("rows")) {
            limits.add(ReadLimit.maxRows(((Number) told.get("rows")).longValue()));
        }
        if (told.containsKey("bytes")) {
            limits.add(ReadLimit.maxBytes(((Number) told.get("bytes")).longValue()));
        }
        if (limits.size() < 2) {
            return limits.isEmpty() ? ReadLimit.allAvailable() : (ReadLimit) limits.get(0);
        }
        return ReadLimit.compositeLimit((ReadLimit[]) limits.toArray(new ReadLimit[0]));
    }

    public Offset latestOffset() {
        throw new UnsupportedOperationException("latestOffset(start, limit) is to be called");
    }

    public Offset latestOffset(Offset start, ReadLimit limit) {
        HashMap question = new HashMap();
        question.put("start", start.json());
        question.put("limits", limits(limit));
        return new Position(answerer.text("latest", question));
    }

    public Offset reportLatestOffset() {
        return null;
    }

    /** How far it is behind the table, in the progress of the query. */
    public Map metrics(Optional read) {
        HashMap question = new HashMap();
        if (read.isPresent()) {
            question.put("read", ((Offset) read.get()).json());
        }
        return new HashMap(answerer.map("behind", question));
    }

    private static Map limits(ReadLimit limit) {
        HashMap out = new HashMap();
        if (limit instanceof CompositeReadLimit) {
            ReadLimit[] parts = ((CompositeReadLimit) limit).getReadLimits();
            for (int i = 0; i < parts.length; i++) {
                out.putAll(limits(parts[i]));
            }
        } else if (limit instanceof ReadMaxFiles) {
            out.put("files", Integer.valueOf(((ReadMaxFiles) limit).maxFiles()));
        } else if (limit instanceof ReadMaxRows) {
            out.put("rows", Long.valueOf(((ReadMaxRows) limit).maxRows()));
        } else if (limit instanceof ReadMaxBytes) {
            out.put("bytes", Long.valueOf(((ReadMaxBytes) limit).maxBytes()));
        }
        return out;
    }

    public void prepareForTriggerAvailableNow() {
        answerer.text("hold", null);
    }

    public InputPartition[] planInputPartitions(Offset start, Offset end) {
        HashMap question = new HashMap();
        question.put("start", start.json());
        question.put("end", end.json());
        question.put("columns", columns);
        factory = new WorkerReaderFactory();
        return factory.partitions((Dataset) answerer.object("rows", question));
    }

    /** For the partitions planned last. */
    public PartitionReaderFactory createReaderFactory() {
        return factory;
    }

    public void commit(Offset end) {
    }

    public void stop() {
    }

    /** Shown in the progress of the query. */
    public String toString() {
        return "lakehouse " + name;
    }

    /** In the history of a branch (`stream_plan.py`). */
    static final class Position extends Offset {
        private final String json;

        Position(String json) {
            this.json = json;
        }

        public String json() {
            return json;
        }
    }
}
