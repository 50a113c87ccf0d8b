package lakehouse.spark;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/**
 * A condition that is given as text, as `WHERE` of a query would have it: Spark's own parser,
 * analyser and optimizer make of it what they make of a query's, over rows of which they know
 * nothing but the columns.
 */
final class StatedCondition {
    private StatedCondition() {
    }

    /** JSON of what all must hold: `{"sql": "(id > 1)", "filters": "[...]"}` (`FilterJson`). */
    static String of(SparkSession session, StructType columns, String name, String text) {
        Option before = SparkSession.getActiveSession();
        SparkSession.setActiveSession(session);
        try {
            JavaSparkContext context = new JavaSparkContext(session.sparkContext());
            Dataset rows = session.createDataFrame(context.emptyRDD(), columns).as(name);
            ArrayList out = new ArrayList();
            add(rows.where(text).queryExecution().optimizedPlan(), out);
            return Answerer.json(out);
        } finally {
            if (before.isDefined()) {
                SparkSession.setActiveSession((SparkSession) before.get());
            } else {
                SparkSession.clearActiveSession();
            }
        }
    }

    private static void add(LogicalPlan plan, ArrayList out) {
        if (plan instanceof LogicalRDD) {
            return;
        }
        if (plan instanceof Filter && ((Filter) plan).child() instanceof LogicalRDD) {
            add(((Filter) plan).condition(), out);
        } else if (plan.children().isEmpty()) {
            // true of no row, which needs no rows to say so
            add(Literal.FalseLiteral(), out);
        } else {
            throw new UnsupportedOperationException("it needs more than the rows of the table");
        }
    }

    private static void add(Expression condition, ArrayList out) {
        if (condition instanceof And) {
            add(((And) condition).left(), out);
            add(((And) condition).right(), out);
            return;
        }
        HashMap one = new HashMap();
        one.put("sql", condition.sql());
        one.put("filters", FilterJson.of(Collections.singletonList(condition)));
        out.add(one);
    }
}
