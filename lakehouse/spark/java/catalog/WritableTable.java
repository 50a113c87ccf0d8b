package lakehouse.spark;

import java.util.EnumSet;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsDeleteV2;
import org.apache.spark.sql.connector.catalog.SupportsRowLevelOperations;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperationBuilder;
import org.apache.spark.sql.connector.write.RowLevelOperationInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;

/** A table at the head of a branch, which can be written to. */
class WritableTable extends EvolvingTable
        implements SupportsWrite, SupportsDeleteV2, SupportsRowLevelOperations {
    private static final int CALLERS = 12;

    WritableTable(Answerer answerer, Map facts) {
        super(answerer, facts);
    }

    public Set capabilities() {
        HashSet out = new HashSet(EnumSet.of(
            TableCapability.BATCH_READ, TableCapability.BATCH_WRITE, TableCapability.TRUNCATE,
            TableCapability.OVERWRITE_BY_FILTER, TableCapability.OVERWRITE_DYNAMIC,
            TableCapability.STREAMING_WRITE, TableCapability.MICRO_BATCH_READ,
            TableCapability.AUTOMATIC_SCHEMA_EVOLUTION));
        if (is("accepts_any") && !isAskedByMerge()) {
            out.add(TableCapability.ACCEPT_ANY_SCHEMA);
        }
        return out;
    }

    /**
     * Whether it is for a MERGE that Spark asks whether columns are to be left unresolved. It would
     * then complain that they are, and which statement a table is loaded for it does not say: a
     * MERGE that inserts alone looks like an INSERT.
     */
    private static boolean isAskedByMerge() {
        StackTraceElement[] callers = new Throwable().getStackTrace();
        for (int i = 0; i + 1 < Math.min(callers.length, CALLERS); i++) {
            if (callers[i].getMethodName().equals("skipSchemaResolution")) {
                String next = callers[i + 1].getClassName();
                if (next.endsWith(".MergeIntoTable") || next.contains("ResolveReferences")) {
                    return true;
                }
            }
        }
        return false;
    }

    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
        return new LakehouseWriteBuilder(this, info);
    }

    // DELETE by metadata: whole files alone

    public boolean canDeleteWhere(Predicate[] predicates) {
        return answerer.yes("drops_whole_files", asked(predicates));
    }

    public void deleteWhere(Predicate[] predicates) {
        answerer.text("delete_where", asked(predicates));
    }

    public boolean truncateTable() {
        deleteWhere(new Predicate[0]);
        return true;
    }

    private static Map asked(Predicate[] predicates) {
        HashMap asked = new HashMap();
        asked.put("filters", PredicateJson.of(predicates));
        return asked;
    }

    // DELETE, UPDATE, MERGE by rows

    public RowLevelOperationBuilder newRowLevelOperationBuilder(RowLevelOperationInfo info) {
        HashMap asked = new HashMap();
        asked.put("command", info.command().toString());
        Answerer operation = answerer.answerer("operation", asked);
        return new RowLevelChange.Builder(this, operation, info.command());
    }
}
