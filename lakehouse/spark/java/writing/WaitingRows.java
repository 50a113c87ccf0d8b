package lakehouse.spark;

import java.io.IOException;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BaseOrdering;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.execution.UnsafeExternalRowSorter;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.collection.unsafe.sort.PrefixComparators;

/**
 * Rows of a task in the order in which they came: Spark's sorter, which spills to disk when memory
 * is short, sorts them by that.
 */
final class WaitingRows {
    private final UnsafeExternalRowSorter sorter;
    private final UnsafeProjection same;
    private boolean empty = true;

    WaitingRows(StructType schema) throws IOException {
        same = UnsafeProjection.create(schema);
        sorter = UnsafeExternalRowSorter.create(
            schema, new Alike(), PrefixComparators.LONG, new Arrival(),
            TaskContext.get().taskMemoryManager().pageSizeBytes(), true);
    }

    void add(InternalRow row) throws IOException {
        empty = false;
        sorter.insertRow(same.apply(row));
    }

    boolean isEmpty() {
        return empty;
    }

    /** All rows; no further one can be added. */
    scala.collection.Iterator all() throws IOException {
        return sorter.sort();
    }

    void forget() {
        sorter.cleanupResources();
    }

    /** The number of a row. */
    static final class Arrival extends UnsafeExternalRowSorter.PrefixComputer {
        private final UnsafeExternalRowSorter.PrefixComputer.Prefix prefix =
            new UnsafeExternalRowSorter.PrefixComputer.Prefix();

        public UnsafeExternalRowSorter.PrefixComputer.Prefix computePrefix(InternalRow row) {
            prefix.value++;
            prefix.isNull = false;
            return prefix;
        }
    }

    /** No two rows have one number. */
    static final class Alike extends BaseOrdering {
        public int compare(InternalRow one, InternalRow other) {
            return 0;
        }
    }
}
