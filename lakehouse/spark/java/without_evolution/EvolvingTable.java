package lakehouse.spark;

import java.util.Map;

/** A table whose columns Spark changes WITH SCHEMA EVOLUTION without asking it before. */
abstract class EvolvingTable extends LakehouseTable {
    EvolvingTable(Answerer answerer, Map facts) {
        super(answerer, facts);
    }
}
