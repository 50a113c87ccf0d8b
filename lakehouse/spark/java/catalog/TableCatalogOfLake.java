package lakehouse.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.NamespaceAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.NoSuchFunctionException;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.NonEmptyNamespaceException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.FunctionCatalog;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableCatalogCapability;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.connector.catalog.TableWritePrivilege;
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.jdk.javaapi.CollectionConverters;

/** Namespaces and tables of a lakehouse. Every question goes to Python, which knows the catalog. */
abstract class TableCatalogOfLake implements TableCatalog, SupportsNamespaces, FunctionCatalog {
    private static final String SETTINGS = "spark.sql.iceberg.";
    private String name;
    private String key;
    private String[] namespace = new String[0];
    private Map settings = new HashMap();

    public void initialize(String catalog, CaseInsensitiveStringMap options) {
        this.name = catalog;
        this.key = options.get("lake");
        if (options.containsKey("default-namespace")) {
            this.namespace = options.get("default-namespace").split("\\.");
        }
        ArrayList others = new ArrayList(options.keySet());
        others.removeAll(Arrays.asList(new String[] {"lake", "default-namespace"}));
        Answerer found = lake();
        if (!others.isEmpty()) {
            found.text("catalog_options", question("names", others));
        }
    }

    public String[] defaultNamespace() {
        return namespace;
    }

    /** Has the session's settings of Iceberg's runtime looked at, when they have changed. */
    void checkSettings() {
        HashMap found = new HashMap();
        Map all = CollectionConverters.asJava(
            SparkSession.active().sessionState().conf().getAllConfs());
        for (Object one : all.entrySet()) {
            if (((String) ((Map.Entry) one).getKey()).startsWith(SETTINGS)) {
                found.put(((Map.Entry) one).getKey(), ((Map.Entry) one).getValue());
            }
        }
        if (!found.equals(settings)) {
            lake().text("settings", found);
            settings = found;
        }
    }

    public String name() {
        return name;
    }

    /**
     * Answers for the catalog now: a lakehouse attached again under the same name replaces the one
     * before.
     */
    Answerer lake() {
        return Answerer.lake(name, key);
    }

    public Set capabilities() {
        return java.util.EnumSet.of(TableCatalogCapability.SUPPORT_COLUMN_DEFAULT_VALUE);
    }

    // Namespaces

    public String[][] listNamespaces() {
        return namespaces(lake().list("namespaces", question("namespace", new String[0])));
    }

    public String[][] listNamespaces(String[] namespace) throws NoSuchNamespaceException {
        if (namespace.length == 0) {
            return listNamespaces();
        }
        mustExist(namespace);
        return namespaces(lake().list("namespaces", question("namespace", namespace)));
    }

    public boolean namespaceExists(String[] namespace) {
        return namespace.length > 0
            && lake().yes("namespace_exists", question("namespace", namespace));
    }

    public Map loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
        mustExist(namespace);
        return lake().map("namespace_properties", question("namespace", namespace));
    }

    public void createNamespace(String[] namespace, Map metadata)
            throws NamespaceAlreadyExistsException {
        if (namespaceExists(namespace)) {
            throw new NamespaceAlreadyExistsException(namespace);
        }
        Map asked = question("namespace", namespace);
        asked.put("properties", metadata);
        lake().text("create_namespace", asked);
    }

    public void alterNamespace(String[] namespace, NamespaceChange[] changes)
            throws NoSuchNamespaceException {
        mustExist(namespace);
        HashMap set = new HashMap();
        ArrayList removed = new ArrayList();
        for (int i = 0; i < changes.length; i++) {
            if (changes[i] instanceof NamespaceChange.SetProperty) {
                NamespaceChange.SetProperty change = (NamespaceChange.SetProperty) changes[i];
                set.put(change.property(), change.value());
            } else {
                removed.add(((NamespaceChange.RemoveProperty) changes[i]).property());
            }
        }
        Map asked = question("namespace", namespace);
        asked.put("set", set);
        asked.put("removed", removed);
        lake().text("alter_namespace", asked);
    }

    public boolean dropNamespace(String[] namespace, boolean cascade)
            throws NoSuchNamespaceException, NonEmptyNamespaceException {
        mustExist(namespace);
        Map asked = question("namespace", namespace);
        asked.put("cascade", Boolean.valueOf(cascade));
        if (!lake().yes("drop_namespace", asked)) {
            throw new NonEmptyNamespaceException(namespace);
        }
        return true;
    }

    // Tables

    public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
        mustExist(namespace);
        return identifiers(namespace, "tables");
    }

    public Table loadTable(Identifier ident) throws NoSuchTableException {
        return load(ident, named(ident));
    }

    public Table loadTable(Identifier ident, String version) throws NoSuchTableException {
        Map asked = named(ident);
        asked.put("version", version);
        return load(ident, asked);
    }

    public Table loadTable(Identifier ident, long micros) throws NoSuchTableException {
        Map asked = named(ident);
        asked.put("as_of_us", Long.valueOf(micros));
        return load(ident, asked);
    }

    /**
     * For a statement that writes. Of rows that are added alone may the columns be any, where the
     * table says so: Spark finds no plan for other changes of such a table.
     */
    public Table loadTable(Identifier ident, Set privileges) throws NoSuchTableException {
        Map asked = named(ident);
        asked.put("inserts", Boolean.valueOf(privileges.contains(TableWritePrivilege.INSERT)
            && !privileges.contains(TableWritePrivilege.UPDATE)));
        return load(ident, asked);
    }

    Table load(Identifier ident, Map asked) throws NoSuchTableException {
        checkSettings();
        asked.put("pipeline", PipelineCaller.name());
        Answerer found = lake().answerer("load", asked);
        if (found == null) {
            throw new NoSuchTableException(ident);
        }
        return LakehouseTable.of(found);
    }

    public boolean tableExists(Identifier ident) {
        Map asked = named(ident);
        asked.put("pipeline", PipelineCaller.name());
        return lake().yes("table_exists", asked);
    }

    public Table createTable(Identifier ident, TableInfo info)
            throws TableAlreadyExistsException, NoSuchNamespaceException {
        mustExist(ident.namespace());
        if (isTaken(ident)) {
            throw new TableAlreadyExistsException(ident);
        }
        Map asked = described(ident, info);
        asked.put("pipeline", PipelineCaller.name());
        asked.put("by_stream", Boolean.valueOf(PipelineCaller.isStream()));
        return LakehouseTable.of(lake().answerer("create_table", asked));
    }

    public Table alterTable(Identifier ident, TableChange[] changes) throws NoSuchTableException {
        Map asked = named(ident);
        asked.put("changes", TableChanges.told(changes));
        asked.put("pipeline", PipelineCaller.name());
        if (!tableExists(ident)) {
            throw new NoSuchTableException(ident);
        }
        try {
            return LakehouseTable.of(lake().answerer("alter_table", asked));
        } catch (IllegalArgumentException error) {
            // Spark would wrap it in an exception that Python shows with Java's stack
            throw new UnsupportedOperationException(error.getMessage(), error);
        }
    }

    public boolean dropTable(Identifier ident) {
        return dropped(ident, false);
    }

    public boolean purgeTable(Identifier ident) {
        return dropped(ident, true);
    }

    private boolean dropped(Identifier ident, boolean purge) {
        Map asked = named(ident);
        asked.put("purge", Boolean.valueOf(purge));
        return lake().yes("drop_table", asked);
    }

    public void renameTable(Identifier from, Identifier given)
            throws NoSuchTableException, TableAlreadyExistsException {
        Identifier to = withoutCatalog(given);
        if (!tableExists(from)) {
            throw new NoSuchTableException(from);
        }
        if (isTaken(to)) {
            throw new TableAlreadyExistsException(to);
        }
        Map asked = named(from);
        asked.put("to_namespace", to.namespace());
        asked.put("to_name", to.name());
        lake().text("rename_table", asked);
    }

    // Functions, in the namespace `system`, and for partitionings in none

    public Identifier[] listFunctions(String[] namespace) throws NoSuchNamespaceException {
        if (!isOfFunctions(namespace)) {
            mustExist(namespace);
            return new Identifier[0];
        }
        Identifier[] out = new Identifier[TransformFunction.NAMES.length];
        for (int i = 0; i < out.length; i++) {
            out[i] = Identifier.of(namespace, TransformFunction.NAMES[i]);
        }
        return out;
    }

    public UnboundFunction loadFunction(Identifier ident) throws NoSuchFunctionException {
        String asked = ident.name().toLowerCase(Locale.ROOT);
        if (!isOfFunctions(ident.namespace())
                || !Arrays.asList(TransformFunction.NAMES).contains(asked)) {
            throw new NoSuchFunctionException(ident);
        }
        return new TransformFunction(asked);
    }

    static boolean isOfFunctions(String[] namespace) {
        return namespace.length == 0
            || (namespace.length == 1 && namespace[0].equalsIgnoreCase("system"));
    }

    // Shared

    /** Names of one kind in a namespace. */
    Identifier[] identifiers(String[] namespace, String verb) {
        List names = lake().list(verb, question("namespace", namespace));
        Identifier[] out = new Identifier[names.size()];
        for (int i = 0; i < out.length; i++) {
            out[i] = Identifier.of(namespace, (String) names.get(i));
        }
        return out;
    }

    boolean isView(Identifier ident) {
        return lake().yes("view_exists", named(ident));
    }

    /** The new name of a table or view, which Spark leaves as it is written. */
    Identifier withoutCatalog(Identifier ident) {
        String[] namespace = ident.namespace();
        if (namespace.length < 2 || !namespace[0].equals(name) || namespaceExists(namespace)) {
            return ident;
        }
        String[] rest = (String[]) Arrays.copyOfRange(namespace, 1, namespace.length);
        return Identifier.of(rest, ident.name());
    }

    /** Whether a table or a view has the name. */
    boolean isTaken(Identifier ident) {
        return tableExists(ident) || isView(ident);
    }

    void mustExist(String[] namespace) throws NoSuchNamespaceException {
        if (!namespaceExists(namespace)) {
            throw new NoSuchNamespaceException(namespace);
        }
    }

    static Map named(Identifier ident) {
        Map asked = question("namespace", ident.namespace());
        asked.put("name", ident.name());
        return asked;
    }

    /** A table that is to be made. */
    static Map described(Identifier ident, TableInfo info) {
        Map asked = named(ident);
        asked.put("schema", CatalogV2Util.v2ColumnsToStructType(info.columns()).json());
        ArrayList terms = new ArrayList();
        Transform[] partitions = info.partitions();
        for (int i = 0; i < partitions.length; i++) {
            terms.add(partitions[i].describe());
        }
        asked.put("partition_by", terms);
        HashMap defaults = new HashMap();
        for (int i = 0; i < info.columns().length; i++) {
            Column column = info.columns()[i];
            if (column.defaultValue() != null) {
                defaults.put(column.name(), TableChanges.defaultOf(column.defaultValue()));
            }
        }
        asked.put("defaults", defaults);
        asked.put("properties", info.properties());
        return asked;
    }

    private static Map question(String argument, Object value) {
        HashMap asked = new HashMap();
        asked.put(argument, value);
        return asked;
    }

    private static String[][] namespaces(List told) {
        String[][] out = new String[told.size()][];
        for (int i = 0; i < out.length; i++) {
            out[i] = (String[]) ((List) told.get(i)).toArray(new String[0]);
        }
        return out;
    }
}
