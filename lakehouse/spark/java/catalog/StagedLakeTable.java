package lakehouse.spark;

import java.util.Map;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;

/** A table that is made, or made anew, when its first rows are written (`staged_tables.py`). */
final class StagedLakeTable extends WritableTable implements StagedTable {
    private boolean publishing;

    StagedLakeTable(Answerer answerer, Map facts) {
        super(answerer, facts);
    }

    public void commitStagedChanges() {
        publishing = true;
        answerer.text("publish", null);
    }

    public CustomTaskMetric[] reportDriverMetrics() {
        return new CustomTaskMetric[0];
    }

    /** What became of a table that could not be published is for Python to decide. */
    public void abortStagedChanges() {
        if (!publishing) {
            answerer.text("abandon", null);
        }
    }
}
