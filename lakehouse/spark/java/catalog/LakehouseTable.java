package lakehouse.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.connector.catalog.SupportsMetadataColumns;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * One version of a table, or of one of its metadata tables: what Python told of it when it was
 * loaded.
 */
public class LakehouseTable implements SupportsRead, SupportsMetadataColumns {
    private static final String[] POINTS = new String[] {
        "snapshot-id", "as-of-timestamp", "branch", "tag", "start-snapshot-id", "end-snapshot-id"};
    private static final List OF_STREAMS = Arrays.asList(new String[] {
        "stream-from-timestamp", "stream-from-snapshot-id", "stream-from-tag", "failondataloss",
        "streaming-skip-overwrite-snapshots", "streaming-skip-delete-snapshots",
        "maxfilespertrigger", "maxrowspertrigger", "maxbytespertrigger"});
    final Answerer answerer;
    final Map facts;
    private final StructType schema;

    LakehouseTable(Answerer answerer, Map facts) {
        this.answerer = answerer;
        this.facts = facts;
        this.schema = (StructType) DataType.fromJson((String) facts.get("schema"));
    }

    static LakehouseTable of(Answerer answerer) {
        Map facts = answerer.map("facts", null);
        if (Boolean.TRUE.equals(facts.get("staged"))) {
            return new StagedLakeTable(answerer, facts);
        }
        return Boolean.TRUE.equals(facts.get("writable")) ? new WritableTable(answerer, facts)
            : new LakehouseTable(answerer, facts);
    }

    public String name() {
        return (String) facts.get("name");
    }

    public String id() {
        return (String) facts.get("id");
    }

    /** Names a version for Spark, which loads tables anew where a plan outlives a version. */
    public String version() {
        return (String) facts.get("version");
    }

    public StructType schema() {
        return schema;
    }

    public Map properties() {
        return (Map) facts.get("properties");
    }

    public Transform[] partitioning() {
        List told = (List) facts.get("partitioning");
        Transform[] out = new Transform[told.size()];
        for (int i = 0; i < out.length; i++) {
            out[i] = PartitionTerms.transform((Map) told.get(i));
        }
        return out;
    }

    public Set capabilities() {
        return is("streams")
            ? EnumSet.of(TableCapability.BATCH_READ, TableCapability.MICRO_BATCH_READ)
            : EnumSet.of(TableCapability.BATCH_READ);
    }

    public MetadataColumn[] metadataColumns() {
        List told = (List) facts.get("metadata_columns");
        MetadataColumn[] out = new MetadataColumn[told.size()];
        for (int i = 0; i < out.length; i++) {
            out[i] = new Hidden((Map) told.get(i));
        }
        return out;
    }

    /** Options of Iceberg's readers say which snapshot is read, of the columns of this version. */
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
        HashMap point = new HashMap();
        for (int i = 0; i < POINTS.length; i++) {
            if (options.containsKey(POINTS[i])) {
                point.put(POINTS[i], options.get(POINTS[i]));
            }
        }
        HashMap others = new HashMap(options);
        others.keySet().removeAll(point.keySet());
        others.keySet().removeAll(OF_STREAMS);
        Map splits = others.isEmpty() ? new HashMap() : answerer.map("options", others);
        LakehouseTable read = point.isEmpty() ? this : of(answerer.answerer("at", point));
        return new LakehouseScanBuilder(splits.isEmpty() ? read : read.cut(splits), null)
            .orStream(this, options.asCaseSensitiveMap());
    }

    /** The same, whose files are cut and packed as a read asks for (`Slicing`). */
    private LakehouseTable cut(Map splits) {
        HashMap asked = new HashMap((Map) facts.get("splits"));
        asked.putAll(splits);
        HashMap told = new HashMap(facts);
        told.put("splits", asked);
        return new LakehouseTable(answerer, told);
    }

    boolean is(String fact) {
        return Boolean.TRUE.equals(facts.get(fact));
    }

    long number(String fact) {
        return ((Number) facts.get(fact)).longValue();
    }

    /** Names of columns by a fact that lists them. */
    Set names(String fact) {
        return new HashSet((List) facts.get(fact));
    }

    /** Names of columns by which files are told apart, in backticks. */
    Set partitionColumns() {
        HashSet out = new HashSet();
        for (Object one : (List) facts.get("partitioning")) {
            out.add(((Map) one).get("column"));
        }
        return out;
    }

    static String quoted(String name) {
        return "`" + name.replace("`", "``") + "`";
    }

    public boolean equals(Object other) {
        return other instanceof LakehouseTable && facts.equals(((LakehouseTable) other).facts);
    }

    public int hashCode() {
        return name().hashCode();
    }

    public String toString() {
        return name();
    }

    /** A column that every table has beside its own. */
    static final class Hidden implements MetadataColumn {
        private final Map told;

        Hidden(Map told) {
            this.told = told;
        }

        public String name() {
            return (String) told.get("name");
        }

        public DataType dataType() {
            return DataType.fromJson((String) told.get("type"));
        }

        public boolean isNullable() {
            return ((Boolean) told.get("nullable")).booleanValue();
        }

        public String comment() {
            return (String) told.get("comment");
        }

        /** Row lineage goes with a row that moves; what tells where a row was does not. */
        public String metadataInJSON() {
            return (String) told.get("metadata");
        }
    }
}
