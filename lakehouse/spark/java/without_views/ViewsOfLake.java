package lakehouse.spark;

import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Table;

/** Tables of a lakehouse alone: this version of Spark does not ask catalogs for views. */
abstract class ViewsOfLake extends TableCatalogOfLake {
    Table load(Identifier ident, Map asked) throws NoSuchTableException {
        if (!tableExists(ident) && isView(ident)) {
            throw new UnsupportedOperationException(
                name() + "." + ident + " is a view, and Spark asks catalogs for views from version"
                + " 4.2 on");
        }
        return super.load(ident, asked);
    }
}
