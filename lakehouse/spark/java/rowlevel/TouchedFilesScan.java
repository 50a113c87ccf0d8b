package lakehouse.spark;

import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.SupportsReportPartitioning;
import org.apache.spark.sql.connector.read.partitioning.KeyGroupedPartitioning;
import org.apache.spark.sql.connector.read.partitioning.Partitioning;
import org.apache.spark.sql.connector.read.partitioning.UnknownPartitioning;
import org.apache.spark.sql.types.StructType;

/**
 * The scan of the query by which Spark finds out, before it reads the rows that a statement
 * changes, in which files they are. Where each of its tasks has one whole file, Spark is told, and
 * needs no shuffle to name each file once.
 */
final class TouchedFilesScan extends QueryScan implements SupportsReportPartitioning {
    private boolean told;

    TouchedFilesScan(
            LakehouseTable table, StructType required, String filters, String description,
            List rowGroupFilters) {
        super(table, required, filters, description, rowGroupFilters);
    }

    static boolean isAskedFor(StructType required) {
        return Arrays.asList(required.fieldNames()).contains(FileHash.COLUMN);
    }

    public synchronized Partitioning outputPartitioning() {
        InputPartition[] tasks = super.planInputPartitions();
        told = tasks.length == files().length;
        for (int i = 0; i < tasks.length; i++) {
            DataFileSlice[] slices = ((SliceGroup) tasks[i]).slices;
            told &= slices.length == 1 && slices[0].length == slices[0].fileBytes;
        }
        return !told ? (Partitioning) new UnknownPartitioning(tasks.length)
            : (Partitioning) new KeyGroupedPartitioning(
                new Expression[] {Expressions.identity(FileHash.COLUMN)}, tasks.length);
    }

    /** What was told stays true when fewer files are left than there were. */
    public synchronized InputPartition[] planInputPartitions() {
        if (!told) {
            return super.planInputPartitions();
        }
        DataFileSlice[] files = files();
        InputPartition[] tasks = new InputPartition[files.length];
        for (int i = 0; i < tasks.length; i++) {
            Object[] key = new Object[] {Long.valueOf(FileHash.of(files[i].location))};
            tasks[i] = new GroupedScan.OfPartition(
                new DataFileSlice[] {files[i]}, new GenericInternalRow(key));
        }
        return tasks;
    }
}
