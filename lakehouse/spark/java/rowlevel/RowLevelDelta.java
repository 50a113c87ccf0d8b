package lakehouse.spark;

import java.util.Map;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.write.DeltaWriteBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.connector.write.SupportsDelta;

/**
 * DELETE, UPDATE or MERGE that marks rows as deleted and writes new ones beside them
 * (merge-on-read).
 */
final class RowLevelDelta extends RowLevelChange implements SupportsDelta {
    RowLevelDelta(
            WritableTable table, Answerer answerer, RowLevelOperation.Command command, Map facts) {
        super(table, answerer, command, facts);
    }

    /** A row is told by its file and its position there. */
    public NamedReference[] rowId() {
        return new NamedReference[] {
            Expressions.column(FileHash.COLUMN), Expressions.column("_pos")};
    }

    /** An update is one row for the writer: the old position and the new values. */
    public boolean representUpdateAsDeleteAndInsert() {
        return false;
    }

    public DeltaWriteBuilder newWriteBuilder(LogicalWriteInfo info) {
        refuseOthers(info.schema());
        return new DeltaRowWrite.Builder(this);
    }
}
