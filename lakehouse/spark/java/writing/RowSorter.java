package lakehouse.spark;

import java.io.IOException;
import java.util.Arrays;
import java.util.Iterator;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.BaseOrdering;
import org.apache.spark.sql.execution.UnsafeExternalRowSorter;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.collection.unsafe.sort.PrefixComparators;
import scala.jdk.javaapi.CollectionConverters;

/** Brings rows of equal partitions together; spills to disk when memory is short. */
final class RowSorter {
    private final UnsafeExternalRowSorter sorter;
    private final UnsafeProjection same;

    RowSorter(StructType schema, PartitionKey key) throws IOException {
        this.same = UnsafeProjection.create(schema);
        this.sorter = UnsafeExternalRowSorter.create(
            schema, new ByBytes(key), PrefixComparators.LONG, new KeyHash(key),
            TaskContext.get().taskMemoryManager().pageSizeBytes(), false);
    }

    void add(InternalRow row) throws IOException {
        sorter.insertRow(same.apply(row));
    }

    Iterator sorted() throws IOException {
        return CollectionConverters.asJava(sorter.sort());
    }

    /** Any order will do that brings equal keys together. */
    static final class KeyHash extends UnsafeExternalRowSorter.PrefixComputer {
        private final PartitionKey key;
        private final UnsafeExternalRowSorter.PrefixComputer.Prefix prefix =
            new UnsafeExternalRowSorter.PrefixComputer.Prefix();

        KeyHash(PartitionKey key) {
            this.key = key;
        }

        public UnsafeExternalRowSorter.PrefixComputer.Prefix computePrefix(InternalRow row) {
            prefix.value = key.of(row).hashCode();
            prefix.isNull = false;
            return prefix;
        }
    }

    /** Among keys of one hash. */
    static final class ByBytes extends BaseOrdering {
        private final PartitionKey key;

        ByBytes(PartitionKey key) {
            this.key = key;
        }

        public int compare(InternalRow one, InternalRow other) {
            byte[] left = key.of(one).getBytes();
            byte[] right = key.of(other).getBytes();
            return Arrays.compare(left, right);
        }
    }
}
