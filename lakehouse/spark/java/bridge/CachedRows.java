package lakehouse.spark;

import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.execution.CacheManager;
import org.apache.spark.sql.execution.CachedData;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** What the sessions of an application have cached (`CACHE TABLE`, `DataFrame.cache`). */
final class CachedRows {
    private CachedRows() {
    }

    /**
     * Has a session read again what is cached of the table with this id, under whatever name: also
     * of its branches, tags and metadata tables, and what was computed of them.
     */
    static void recache(SparkSession session, String id) throws Exception {
        CacheManager cache = session.sharedState().cacheManager();
        if (cache.isEmpty()) {
            return;
        }
        // Spark finds what is cached by one name or by one plan alone
        Field field = CacheManager.class.getDeclaredField("cachedData");
        field.setAccessible(true);
        ArrayList plans = new ArrayList();
        for (Object one : CollectionConverters.asJava((Seq) field.get(cache))) {
            LogicalPlan plan = ((CachedData) one).plan();
            if (reads(plan, id)) {
                plans.add(plan);
            }
        }
        for (Object plan : plans) {
            cache.recacheByPlan(session, (LogicalPlan) plan);
        }
    }

    private static boolean reads(LogicalPlan plan, String id) {
        ArrayList leaves = new ArrayList(CollectionConverters.asJava(plan.collectLeaves()));
        List inside = CollectionConverters.asJava(plan.subqueriesAll());
        for (Object one : inside) {
            leaves.addAll(CollectionConverters.asJava(((LogicalPlan) one).collectLeaves()));
        }
        for (Object leaf : leaves) {
            if (leaf instanceof DataSourceV2Relation
                    && ((DataSourceV2Relation) leaf).identifier().isDefined()) {
                Table table = ((DataSourceV2Relation) leaf).table();
                if (table instanceof LakehouseTable
                        && (table.id().equals(id) || table.id().startsWith(id + "."))) {
                    return true;
                }
            }
        }
        return false;
    }
}
