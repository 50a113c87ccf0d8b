package lakehouse.spark;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsDynamicOverwrite;
import org.apache.spark.sql.connector.write.SupportsOverwriteV2;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend;

/**
 * A write that adds rows, replaces those of a condition, all of them, or those of whole partitions.
 */
final class LakehouseWriteBuilder
        implements SupportsOverwriteV2, SupportsDynamicOverwrite, SupportsStreamingUpdateAsAppend {
    private final WritableTable table;
    private final LogicalWriteInfo info;
    private String mode = "append";
    private String filters = "[]";

    LakehouseWriteBuilder(WritableTable table, LogicalWriteInfo info) {
        this.table = table;
        this.info = info;
    }

    public WriteBuilder truncate() {
        mode = "overwrite";
        return this;
    }

    /** Python says what cannot be done, and why. */
    public boolean canOverwrite(Predicate[] predicates) {
        return true;
    }

    public WriteBuilder overwrite(Predicate[] predicates) {
        mode = "overwrite";
        filters = PredicateJson.of(predicates);
        return this;
    }

    public WriteBuilder overwriteDynamicPartitions() {
        mode = "dynamic";
        return this;
    }

    public Write build() {
        HashMap asked = new HashMap();
        asked.put("mode", mode);
        asked.put("filters", filters);
        asked.put("options", info.options().asCaseSensitiveMap());
        asked.put("columns", info.schema().json());
        Map stream = StreamedWrite.stream(info);
        if (stream != null) {
            asked.put("stream", stream);
        }
        Answerer write = table.answerer.answerer("write", asked);
        return new LakehouseWrite(table.name(), write, "plan", info.schema());
    }
}
