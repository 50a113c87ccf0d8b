package lakehouse.spark;

import java.util.function.BiFunction;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/** What Python calls. */
public final class PythonSide {
    public PythonSide() {
    }

    /** From now on `python` answers for the lakehouse of catalogs whose option `lake` is `key`. */
    public void register(String key, BiFunction python) {
        Answerer.register(key, python);
    }

    /** A frame over the one version of a table that `python` answers for. */
    public Dataset frame(SparkSession session, BiFunction python) {
        LakehouseTable table = LakehouseTable.of(new Answerer(python));
        return Dataset.ofRows(
            session, DataSourceV2Relation.create(table, Option.empty(), Option.empty()));
    }

    /** A condition in SQL about a table's columns (`StructType` as JSON), for Python to read. */
    public String condition(SparkSession session, String columns, String name, String text) {
        return StatedCondition.of(session, (StructType) DataType.fromJson(columns), name, text);
    }

    /** Has the session read again what is cached of the table with this id. */
    public void recache(SparkSession session, String id) throws Exception {
        CachedRows.recache(session, id);
    }
}
