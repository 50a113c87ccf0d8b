package lakehouse.spark;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.RebalancePartitions;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction0;

/** Writes the rows of a frame as data files, in the tasks that make them; the caller commits. */
public final class FrameWriter {
    public FrameWriter() {
    }

    /**
     * Brings rows of equal keys together, without a column more in the shuffle; large partitions
     * are split.
     */
    public Dataset rebalance(Dataset rows, Dataset keys) {
        ArrayList found = new ArrayList();
        Project project = (Project) keys.queryExecution().analyzed();
        for (Object one : CollectionConverters.asJava(project.projectList())) {
            found.add(one instanceof Alias ? ((Alias) one).child() : (Expression) one);
        }
        LogicalPlan plan = new RebalancePartitions(
            Scala.seq(found), rows.logicalPlan(), Option.empty(), Option.empty());
        return Dataset.ofRows(rows.sparkSession(), plan);
    }

    /** Writes all rows; each result is one file as a JSON object. */
    public List write(Dataset rows, String order) {
        final QueryExecution query = rows.queryExecution();
        final Task task = new Task(WriteOrder.parse(order, rows.sparkSession()));
        return (List) SQLExecution.withNewExecutionId(
            query, Option.apply("lakehouse write"), new AbstractFunction0() {
                public Object apply() {
                    return query.toRdd().toJavaRDD().mapPartitions(task, false).collect();
                }
            });
    }

    /** One task. */
    static final class Task implements FlatMapFunction {
        private final WriteOrder order;

        Task(WriteOrder order) {
            this.order = order;
        }

        public Iterator call(Object rows) throws Exception {
            TaskContext context = TaskContext.get();
            DataFileWriter writer =
                new DataFileWriter(order, context.partitionId(), context.taskAttemptId());
            try {
                Iterator input = (Iterator) rows;
                while (input.hasNext()) {
                    writer.write((InternalRow) input.next());
                }
                return writer.finish().iterator();
            } catch (Throwable error) {
                writer.abort();
                throw error;
            }
        }
    }
}
