package lakehouse.spark;

import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.NoSuchViewException;
import org.apache.spark.sql.catalyst.analysis.ViewAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Relation;
import org.apache.spark.sql.connector.catalog.RelationCatalog;
import org.apache.spark.sql.connector.catalog.View;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** Tables and views of a lakehouse, for versions of Spark that ask catalogs for views. */
abstract class ViewsOfLake extends TableCatalogOfLake implements RelationCatalog {
    private static final String[] NAMES = new String[0];

    public Relation loadRelation(Identifier ident) throws NoSuchTableException {
        checkSettings();
        Map asked = named(ident);
        asked.put("pipeline", PipelineCaller.name());
        Object found = lake().answererOrMap("load_relation", asked);
        if (found == null) {
            throw new NoSuchTableException(ident);
        }
        if (found instanceof Answerer) {
            return LakehouseTable.of((Answerer) found);
        }
        return view((Map) found);
    }

    public View loadView(Identifier ident) throws NoSuchViewException {
        Map found = lake().map("load_view", named(ident));
        if (found == null) {
            throw new NoSuchViewException(ident);
        }
        return view(found);
    }

    public boolean viewExists(Identifier ident) {
        return isView(ident);
    }

    public Identifier[] listViews(String[] namespace) throws NoSuchNamespaceException {
        mustExist(namespace);
        return identifiers(namespace, "views");
    }

    public View createView(Identifier ident, View info)
            throws ViewAlreadyExistsException, NoSuchNamespaceException {
        mustExist(ident.namespace());
        if (!lake().yes("create_view", told(ident, info))) {
            throw new ViewAlreadyExistsException(ident);
        }
        return info;
    }

    public View replaceView(Identifier ident, View info) throws NoSuchViewException {
        if (!lake().yes("replace_view", told(ident, info))) {
            throw new NoSuchViewException(ident);
        }
        return info;
    }

    public View createOrReplaceView(Identifier ident, View info)
            throws ViewAlreadyExistsException, NoSuchNamespaceException {
        mustExist(ident.namespace());
        if (!lake().yes("create_or_replace_view", told(ident, info))) {
            throw new ViewAlreadyExistsException(ident);
        }
        return info;
    }

    public boolean dropView(Identifier ident) {
        return lake().yes("drop_view", named(ident));
    }

    public void renameView(Identifier from, Identifier given)
            throws NoSuchViewException, ViewAlreadyExistsException {
        Identifier to = withoutCatalog(given);
        if (!isView(from)) {
            throw new NoSuchViewException(from);
        }
        if (isTaken(to)) {
            throw new ViewAlreadyExistsException(to);
        }
        Map asked = named(from);
        asked.put("to_namespace", to.namespace());
        asked.put("to_name", to.name());
        lake().text("rename_view", asked);
    }

    private static View view(Map facts) {
        View.Builder builder = new View.Builder();
        builder.withSchema((StructType) DataType.fromJson((String) facts.get("schema")));
        builder.withProperties((Map) facts.get("properties"));
        builder.withQueryText((String) facts.get("sql"));
        builder.withCurrentCatalog((String) facts.get("catalog"));
        builder.withCurrentNamespace(strings(facts.get("namespace")));
        builder.withSqlConfigs((Map) facts.get("configs"));
        builder.withSchemaMode((String) facts.get("schema_mode"));
        builder.withQueryColumnNames(strings(facts.get("query_columns")));
        return builder.build();
    }

    private static Map told(Identifier ident, View info) {
        Map asked = named(ident);
        asked.put("schema", CatalogV2Util.v2ColumnsToStructType(info.columns()).json());
        asked.put("properties", info.properties());
        asked.put("sql", info.queryText());
        asked.put("catalog", info.currentCatalog());
        asked.put("default_namespace", info.currentNamespace());
        asked.put("configs", info.sqlConfigs());
        asked.put("schema_mode", info.schemaMode());
        asked.put("query_columns", info.queryColumnNames());
        return asked;
    }

    private static String[] strings(Object told) {
        return (String[]) ((List) told).toArray(NAMES);
    }
}
