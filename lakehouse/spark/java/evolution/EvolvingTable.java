package lakehouse.spark;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.SupportsSchemaEvolution;
import org.apache.spark.sql.connector.catalog.TableChange;

/** A table that Spark asks which changes of columns WITH SCHEMA EVOLUTION may make. */
abstract class EvolvingTable extends LakehouseTable implements SupportsSchemaEvolution {
    EvolvingTable(Answerer answerer, Map facts) {
        super(answerer, facts);
    }

    /** Whether the format has it: where it has not, Spark casts what is written, or refuses. */
    public boolean supportsColumnChange(TableChange.ColumnChange change) {
        HashMap asked = new HashMap();
        asked.put("changes", TableChanges.told(new TableChange[] {change}));
        return answerer.yes("can_change", asked);
    }
}
