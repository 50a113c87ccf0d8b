package lakehouse.spark;

import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;

/**
 * Reads rows that Python workers beside the tasks make: the partitions of a scan are those of the
 * plan of a frame.
 */
final class WorkerReaderFactory implements PartitionReaderFactory {
    private RDD rows;

    /** From now on the rows of this frame, which must need no shuffle; gives its partitions. */
    InputPartition[] partitions(Dataset frame) {
        rows = frame.queryExecution().toRdd();
        Partition[] found = rows.partitions();
        InputPartition[] out = new InputPartition[found.length];
        for (int i = 0; i < out.length; i++) {
            out[i] = new Part(found[i], rows.id());
        }
        return out;
    }

    public PartitionReader createReader(InputPartition partition) {
        Part part = (Part) partition;
        if (part.of != rows.id()) {
            throw new IllegalStateException("a partition of another plan of the same scan");
        }
        return new Reader(rows.iterator(part.split, TaskContext.get()));
    }

    static final class Part implements InputPartition {
        private final Partition split;
        private final int of;

        Part(Partition split, int of) {
            this.split = split;
            this.of = of;
        }
    }

    static final class Reader implements PartitionReader {
        private final scala.collection.Iterator rows;
        private InternalRow row;

        Reader(scala.collection.Iterator rows) {
            this.rows = rows;
        }

        public boolean next() {
            if (!rows.hasNext()) {
                return false;
            }
            row = (InternalRow) rows.next();
            return true;
        }

        public Object get() {
            return row;
        }

        /** The worker ends with the task. */
        public void close() {
        }
    }
}
