package lakehouse.spark;

import java.util.Collections;
import org.apache.spark.sql.ExperimentalMethods;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.ApplyFunctionExpression;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.MonotonicallyIncreasingID;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.HintInfo;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.JoinHint;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeRows;
import org.apache.spark.sql.catalyst.plans.logical.NO_BROADCAST_AND_REPLICATION$;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.ReplaceData;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.Option;
import scala.Some;
import scala.collection.immutable.Seq;

/**
 * A rule of the optimizer for MERGE by copy-on-write without a MATCHED clause. Spark keeps a row of
 * the target once for each row of the source that matches it, and checks that there is one only
 * where a clause changes matched rows. Here the first match alone goes on: nothing of the source is
 * written for it. Spark is told, as for its own check, that a row of the target is to meet
 * all rows of the source in one task.
 */
final class KeptOnce extends Rule {
    private static final String ROW = "__lakehouse_row";

    /** Make it a rule of the session that analyses a statement at the moment. */
    static void install() {
        ExperimentalMethods methods = SparkSession.active().experimental();
        synchronized (methods) {
            Seq rules = methods.extraOptimizations();
            for (int i = 0; i < rules.size(); i++) {
                if (rules.apply(i) instanceof KeptOnce) {
                    return;
                }
            }
            methods.extraOptimizations_$eq((Seq) rules.appended(new KeptOnce()));
        }
    }

    public TreeNode apply(TreeNode plan) {
        return plan instanceof ReplaceData && isOurs((ReplaceData) plan)
            ? mended((LogicalPlan) plan, null) : plan;
    }

    private static boolean isOurs(ReplaceData change) {
        Object table = change.originalTable();
        return table instanceof DataSourceV2Relation
            && ((DataSourceV2Relation) table).table() instanceof WritableTable;
    }

    /**
     * A plan from the write down to the join of target and source, above which every node has one
     * child. Where the optimizer needs no join, no row meets two.
     */
    private static LogicalPlan mended(LogicalPlan plan, MergeRows above) {
        MergeRows merge = plan instanceof MergeRows ? (MergeRows) plan : above;
        if (merge == plan && !keepsMatchedRows(merge) || isMended(plan)) {
            return plan;
        }
        if (merge != null && plan instanceof Join) {
            return firstMatches((Join) plan, merge);
        }
        Seq children = plan.children();
        if (children.size() != 1) {
            if (merge != null && children.size() > 1) {
                throw unknown(plan);
            }
            return plan;
        }
        LogicalPlan child = (LogicalPlan) children.head();
        LogicalPlan now = mended(child, merge);
        return now == child ? plan : (LogicalPlan) plan.withNewChildren(Scala.seq(
            Collections.singletonList(now)));
    }

    /** Whether all it does with rows that match is to keep them, however many match. */
    private static boolean keepsMatchedRows(MergeRows merge) {
        return !merge.checkCardinality() && merge.matchedInstructions().size() == 1;
    }

    private static boolean isMended(LogicalPlan plan) {
        if (!(plan instanceof Filter)) {
            return false;
        }
        Expression condition = ((Filter) plan).condition();
        return condition instanceof ApplyFunctionExpression
            && ((ApplyFunctionExpression) condition).function() instanceof FirstMatch;
    }

    private static LogicalPlan firstMatches(Join join, MergeRows merge) {
        Expression target = merge.isTargetRowPresent();
        Expression source = merge.isSourceRowPresent();
        if (!target.references().subsetOf(join.left().outputSet())
                || !source.references().subsetOf(join.right().outputSet())) {
            throw unknown(join);
        }
        Seq none = Scala.seq(Collections.emptyList());
        Alias number = new Alias(
            new MonotonicallyIncreasingID(), ROW, NamedExpression$.MODULE$.newExprId(), none,
            Option.empty(), none);
        LogicalPlan numbered = new Project(
            (Seq) join.left().output().appended(number), join.left());
        JoinHint hint = new JoinHint(
            new Some(new HintInfo(new Some(NO_BROADCAST_AND_REPLICATION$.MODULE$))),
            join.hint().rightHint());
        Expression first = new ApplyFunctionExpression(
            new FirstMatch(), Scala.seq(new Object[] {target, source, number.toAttribute()}));
        return new Filter(
            first, new Join(numbered, join.right(), join.joinType(), join.condition(), hint));
    }

    private static RuntimeException unknown(LogicalPlan plan) {
        return new UnsupportedOperationException(
            "MERGE without a WHEN MATCHED clause is planned by this version of Spark in a way that"
            + " may write rows twice (" + plan.nodeName() + "): set write.merge.mode to"
            + " merge-on-read, or let every row of the table match one row of the source");
    }
}
