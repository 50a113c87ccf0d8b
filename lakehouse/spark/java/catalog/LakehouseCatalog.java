package lakehouse.spark;

import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.ProcedureCatalog;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;

/**
 * `spark.sql.catalog.<name> = lakehouse.spark.LakehouseCatalog`, made so by
 * `lakehouse.spark.attach`.
 */
public final class LakehouseCatalog extends ViewsOfLake
        implements ProcedureCatalog, StagingTableCatalog {
    public LakehouseCatalog() {
    }

    // Tables that are made, or made anew, with their first rows

    public StagedTable stageCreate(Identifier ident, TableInfo info)
            throws TableAlreadyExistsException, NoSuchNamespaceException {
        if (isTaken(ident)) {
            throw new TableAlreadyExistsException(ident);
        }
        return staged(ident, info);
    }

    public StagedTable stageReplace(Identifier ident, TableInfo info)
            throws NoSuchNamespaceException, NoSuchTableException {
        if (!tableExists(ident)) {
            throw new NoSuchTableException(ident);
        }
        return staged(ident, info);
    }

    public StagedTable stageCreateOrReplace(Identifier ident, TableInfo info)
            throws NoSuchNamespaceException {
        return staged(ident, info);
    }

    private StagedTable staged(Identifier ident, TableInfo info) throws NoSuchNamespaceException {
        mustExist(ident.namespace());
        checkSettings();
        return (StagedTable) LakehouseTable.of(lake().answerer("stage", described(ident, info)));
    }

    // Procedures

    public UnboundProcedure loadProcedure(Identifier ident) {
        HashMap asked = new HashMap();
        asked.put("name", ident.name().toLowerCase(Locale.ROOT));
        asked.put("namespace", ident.namespace());
        return new LakeProcedure(lake(), lake().map("procedure", asked));
    }

    public Identifier[] listProcedures(String[] namespace) {
        if (namespace.length != 1 || !isOfFunctions(namespace)) {
            return new Identifier[0];
        }
        List names = lake().list("procedures", null);
        Identifier[] out = new Identifier[names.size()];
        for (int i = 0; i < out.length; i++) {
            out[i] = Identifier.of(namespace, (String) names.get(i));
        }
        return out;
    }
}
