package lakehouse.spark;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/**
 * Files by a Python worker beside the task, for what Spark cannot write itself.
 *
 * Python makes a frame of files out of a frame of rows, as it would of any (`mapInArrow`). Its
 * plan goes to the tasks as Spark's tasks get plans, an RDD, and each computes the one partition
 * over the rows that it has.
 */
final class WorkerWriting implements FileWriting {
    private final StructType schema;
    private final boolean lineage;
    private final TaskRows rows;
    private final RDD files;
    private final Partition split;

    /** `answerer` is asked for the frame of files; `schema` is that of rows, as JSON. */
    WorkerWriting(Answerer answerer, String schema, boolean lineage) {
        SparkSession session = SparkSession.active();
        this.schema = (StructType) DataType.fromJson(schema);
        this.lineage = lineage;
        this.rows = new TaskRows(session.sparkContext());
        Dataset source = session.internalCreateDataFrame(rows, this.schema, false);
        Dataset written = (Dataset) answerer.object("by_workers", null, source);
        this.files = written.queryExecution().toRdd();
        this.split = files.partitions()[0];
    }

    public RowFiles open(int partition, long task) throws IOException {
        return new Handed(new WaitingRows(schema));
    }

    public boolean lineage() {
        return lineage;
    }

    /** The rows of a task wait until it has all of them; then the worker writes them. */
    private final class Handed implements RowFiles {
        private final WaitingRows waiting;

        Handed(WaitingRows waiting) {
            this.waiting = waiting;
        }

        public void write(InternalRow row) throws IOException {
            waiting.add(row);
        }

        public List finish() throws IOException {
            ArrayList told = new ArrayList();
            if (waiting.isEmpty()) {
                return told;
            }
            rows.are(waiting.all());
            scala.collection.Iterator found = files.iterator(split, TaskContext.get());
            while (found.hasNext()) {
                byte[] file = ((InternalRow) found.next()).getBinary(0);
                told.add(new String(file, java.nio.charset.StandardCharsets.UTF_8));
            }
            waiting.forget();
            return told;
        }

        /** A worker that fails deletes its own files. */
        public void abort() {
            waiting.forget();
        }
    }
}
