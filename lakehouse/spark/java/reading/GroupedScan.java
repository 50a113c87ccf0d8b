package lakehouse.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.read.HasPartitionKey;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.SupportsReportPartitioning;
import org.apache.spark.sql.connector.read.partitioning.KeyGroupedPartitioning;
import org.apache.spark.sql.connector.read.partitioning.Partitioning;
import org.apache.spark.sql.connector.read.partitioning.UnknownPartitioning;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/**
 * A scan whose tasks read one partition each and tell Spark which: joins and aggregates by the
 * partitioning of tables need no shuffle. Files of other partition specs than the table's own make
 * it a plain scan.
 */
final class GroupedScan extends LakehouseScan implements SupportsReportPartitioning {
    /** Iceberg's setting: tasks are fewer and larger, which only such queries gain from. */
    static final String SETTING = "spark.sql.iceberg.planning.preserve-data-grouping";
    private final Map grouping;
    private final StructType type;
    private Map groups;

    GroupedScan(
            LakehouseTable table, StructType required, String filters, String description,
            List rowGroupFilters) {
        super(table, required, filters, description, rowGroupFilters);
        grouping = (Map) table.facts.get("grouping");
        type = (StructType) DataType.fromJson((String) grouping.get("type"));
    }

    /** Whether the session asks for it, and Spark can tell the table's partitions apart. */
    static boolean isAskedFor(LakehouseTable table) {
        SQLConf conf = SparkSession.active().sessionState().conf();
        return table.facts.get("grouping") != null && conf.v2BucketingEnabled()
            && Boolean.parseBoolean(conf.getConfString(SETTING, "false"));
    }

    List columns() {
        ArrayList columns = new ArrayList(super.columns());
        columns.add("_partition");
        return columns;
    }

    public Partitioning outputPartitioning() {
        Map found = groups();
        if (found == null) {
            return new UnknownPartitioning(0);
        }
        return new KeyGroupedPartitioning((Expression[]) table.partitioning(), found.size());
    }

    public InputPartition[] planInputPartitions() {
        Map found = groups();
        if (found == null) {
            return super.planInputPartitions();
        }
        Slicing slicing = Slicing.of(table, files(), SparkSession.active());
        ArrayList out = new ArrayList();
        for (Object one : found.entrySet()) {
            List files = (List) ((Map.Entry) one).getValue();
            InternalRow key = PartitionValues.row(type, (Map) ((Map.Entry) one).getKey());
            for (Object group : slicing.packed(
                    (DataFileSlice[]) files.toArray(new DataFileSlice[0]))) {
                out.add(new OfPartition((DataFileSlice[]) group, key));
            }
        }
        return (InputPartition[]) out.toArray(new InputPartition[0]);
    }

    /** Files by their partition; null where one is of another partition spec. */
    private synchronized Map groups() {
        if (groups != null) {
            return groups;
        }
        LinkedHashMap found = new LinkedHashMap();
        List fields = Arrays.asList(type.fieldNames());
        DataFileSlice[] files = files();
        for (int i = 0; i < files.length; i++) {
            Map details = files[i].details();
            if (!grouping.get("spec").equals(details.get("spec"))) {
                return null;
            }
            HashMap key = new HashMap((Map) details.get("partition"));
            key.keySet().retainAll(fields);
            List group = (List) found.get(key);
            if (group == null) {
                group = new ArrayList();
                found.put(key, group);
            }
            group.add(files[i]);
        }
        groups = found;
        return groups;
    }

    /** What one task reads of one partition. */
    static final class OfPartition extends SliceGroup implements HasPartitionKey {
        private final InternalRow key;

        OfPartition(DataFileSlice[] slices, InternalRow key) {
            super(slices);
            this.key = key;
        }

        public InternalRow partitionKey() {
            return key;
        }
    }
}
