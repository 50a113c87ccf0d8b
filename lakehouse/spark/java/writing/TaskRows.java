package lakehouse.spark;

import org.apache.spark.Partition;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.FilePartition;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import scala.collection.Iterator;
import scala.reflect.ClassTag$;

/**
 * One partition, without files: the rows that the task has at hand. Each task has a copy of its
 * own, as of every RDD.
 */
final class TaskRows extends RDD {
    private transient Iterator rows;

    TaskRows(SparkContext context) {
        super(context, Scala.seq(new Object[0]), ClassTag$.MODULE$.apply(InternalRow.class));
    }

    void are(Iterator found) {
        rows = found;
    }

    public Partition[] getPartitions() {
        return new Partition[] {new FilePartition(0, new PartitionedFile[0])};
    }

    public Iterator compute(Partition split, TaskContext context) {
        Iterator found = rows;
        rows = null;
        return found;
    }
}
