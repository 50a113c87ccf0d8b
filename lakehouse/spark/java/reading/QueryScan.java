package lakehouse.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.SupportsRuntimeV2Filtering;
import org.apache.spark.sql.types.StructType;

/**
 * The scan of a query. Where it joins by a column of partitions, Spark finds out while it runs
 * which values the other side has, and files without them are left out.
 */
class QueryScan extends LakehouseScan implements SupportsRuntimeV2Filtering {
    private String among;
    private DataFileSlice[] left;

    QueryScan(
            LakehouseTable table, StructType required, String filters, String description,
            List rowGroupFilters) {
        super(table, required, filters, description, rowGroupFilters);
    }

    public NamedReference[] filterAttributes() {
        Set partitioned = table.partitionColumns();
        ArrayList out = new ArrayList();
        String[] names = required.fieldNames();
        for (int i = 0; i < names.length; i++) {
            String name = LakehouseTable.quoted(names[i]);
            if (partitioned.contains(name)) {
                out.add(Expressions.column(name));
            }
        }
        return (NamedReference[]) out.toArray(new NamedReference[0]);
    }

    public synchronized void filter(Predicate[] predicates) {
        HashMap question = new HashMap();
        question.put("filters", filters);
        question.put("columns", columns());
        question.put("among", PredicateJson.of(predicates));
        among = (String) question.get("among");
        left = FilePlan.parse(planner().text("plan", question)).files;
    }

    synchronized DataFileSlice[] files() {
        return left == null ? plan().files : left;
    }

    /** Filters that come while the query runs make scans differ that began alike. */
    public boolean equals(Object other) {
        return super.equals(other) && (among == null ? ((QueryScan) other).among == null
            : among.equals(((QueryScan) other).among));
    }

    public int hashCode() {
        return super.hashCode();
    }
}
