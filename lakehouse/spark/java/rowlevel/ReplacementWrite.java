package lakehouse.spark;

import java.util.ArrayList;
import java.util.Map;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/** New files in the place of those that were read. */
final class ReplacementWrite extends LakehouseWrite {
    private final RowLevelChange change;

    ReplacementWrite(RowLevelChange change) {
        super(change.table.name(), change.answerer, "write_plan");
        this.change = change;
    }

    Map written(WriterCommitMessage[] messages) {
        Map out = super.written(messages);
        out.put("removed", new ArrayList(change.filesRead().values()));
        return out;
    }

    static final class Builder implements WriteBuilder {
        private final RowLevelChange change;

        Builder(RowLevelChange change) {
            this.change = change;
        }

        public Write build() {
            return new ReplacementWrite(change);
        }
    }
}
