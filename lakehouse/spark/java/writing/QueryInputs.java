package lakehouse.spark;

import java.util.TreeMap;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution$;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import scala.jdk.javaapi.CollectionConverters;

/** The tables of a lakehouse that the query of this thread reads, with the snapshot of each. */
final class QueryInputs {
    private QueryInputs() {
    }

    /** Snapshot ids as text, null where a table has none, by the tables' names. */
    static TreeMap ofThisThread() {
        TreeMap out = new TreeMap();
        String id = SparkSession.active().sparkContext().getLocalProperty(
            SQLExecution$.MODULE$.EXECUTION_ID_KEY());
        QueryExecution query = id == null ? null
            : SQLExecution$.MODULE$.getQueryExecution(Long.parseLong(id));
        if (query != null) {
            collect(query.analyzed(), out);
            collect(query.optimizedPlan(), out); // may have newer versions, and leave tables out
        }
        return out;
    }

    private static void collect(LogicalPlan plan, TreeMap out) {
        if (plan instanceof DataSourceV2Relation) {
            add(((DataSourceV2Relation) plan).table(), out);
        } else if (plan instanceof DataSourceV2ScanRelation) {
            add(((DataSourceV2ScanRelation) plan).relation().table(), out);
        }
        for (Object one : CollectionConverters.asJava(plan.children())) {
            collect((LogicalPlan) one, out);
        }
        for (Object one : CollectionConverters.asJava(plan.subqueries())) {
            collect((LogicalPlan) one, out);
        }
    }

    private static void add(Table table, TreeMap out) {
        if (table instanceof LakehouseTable) {
            String version = ((LakehouseTable) table).version();
            String snapshot = version.substring(0, version.indexOf('.'));
            out.put(table.name(), snapshot.equals("0") ? null : snapshot);
        }
    }
}
