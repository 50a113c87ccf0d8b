package lakehouse.spark;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.SupportsRuntimeV2Filtering;
import org.apache.spark.sql.types.StructType;

/**
 * The scan of rows that may change. Spark finds out while it runs which files have one, and leaves
 * out the others.
 */
class RowLevelScan extends LakehouseScan implements SupportsRuntimeV2Filtering {
    private final Answerer operation;
    private HashSet touched;

    RowLevelScan(
            LakehouseTable table, StructType required, String filters, String description,
            List rowGroupFilters, Answerer operation) {
        super(table, required, filters, description, rowGroupFilters);
        this.operation = operation;
    }

    /** The same files, for other columns. */
    RowLevelScan(RowLevelScan asked, StructType required) {
        super(asked, required);
        this.operation = asked.operation;
    }

    Answerer planner() {
        return operation;
    }

    public NamedReference[] filterAttributes() {
        return new NamedReference[] {Expressions.column(FileHash.COLUMN)};
    }

    public void filter(Predicate[] predicates) {
        for (int i = 0; i < predicates.length; i++) {
            Expression[] parts = predicates[i].children();
            if (predicates[i].name().equals("IN") && parts[0] instanceof NamedReference
                    && ((NamedReference) parts[0]).fieldNames()[0].equals(FileHash.COLUMN)) {
                keep(parts);
            }
        }
    }

    private synchronized void keep(Expression[] parts) {
        HashSet named = new HashSet();
        for (int i = 1; i < parts.length; i++) {
            named.add(((Literal) parts[i]).value());
        }
        if (touched == null) {
            touched = named;
        } else {
            touched.retainAll(named);
        }
    }

    synchronized DataFileSlice[] files() {
        DataFileSlice[] planned = plan().files;
        if (touched == null) {
            return planned;
        }
        ArrayList left = new ArrayList();
        for (int i = 0; i < planned.length; i++) {
            if (touched.contains(Long.valueOf(FileHash.of(planned[i].location)))) {
                left.add(planned[i]);
            }
        }
        return (DataFileSlice[]) left.toArray(new DataFileSlice[0]);
    }

    /** Filters that come while the query runs make scans differ that began alike. */
    public boolean equals(Object other) {
        return super.equals(other) && operation == ((RowLevelScan) other).operation
            && (touched == null ? ((RowLevelScan) other).touched == null
                : touched.equals(((RowLevelScan) other).touched));
    }

    public int hashCode() {
        return super.hashCode();
    }
}
