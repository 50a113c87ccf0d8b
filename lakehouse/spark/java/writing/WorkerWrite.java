package lakehouse.spark;

import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.connector.write.V1Write;
import org.apache.spark.sql.sources.InsertableRelation;

/** A write by Python workers, for files that Spark cannot write: they take the rows as a frame. */
final class WorkerWrite implements V1Write, InsertableRelation {
    private final Answerer answerer;

    WorkerWrite(Answerer answerer) {
        this.answerer = answerer;
    }

    public String description() {
        return "lakehouse by workers";
    }

    public InsertableRelation toInsertableRelation() {
        return this;
    }

    public void insert(Dataset rows, boolean overwrite) {
        answerer.text("insert", null, rows);
    }
}
