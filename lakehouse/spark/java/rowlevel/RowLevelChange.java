package lakehouse.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.connector.write.RowLevelOperationBuilder;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** DELETE, UPDATE or MERGE that replaces every file of which some row changes (copy-on-write). */
class RowLevelChange implements RowLevelOperation {
    final WritableTable table;
    final Answerer answerer;
    private final RowLevelOperation.Command command;
    private final Map facts;
    private final ArrayList scans = new ArrayList();

    RowLevelChange(
            WritableTable table, Answerer answerer, RowLevelOperation.Command command, Map facts) {
        this.table = table;
        this.answerer = answerer;
        this.command = command;
        this.facts = facts;
    }

    public String description() {
        return "lakehouse " + command;
    }

    public RowLevelOperation.Command command() {
        return command;
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
        return new LakehouseScanBuilder(table, this);
    }

    /** Remembers what is read for the change. */
    Scan scanned(RowLevelScan scan) {
        scans.add(scan);
        return scan;
    }

    /**
     * Locations of the files that were read, by `FileHash`: of all scans, as one statement may read
     * the table twice.
     */
    Map filesRead() {
        LinkedHashMap out = new LinkedHashMap();
        for (Object scan : scans) {
            DataFileSlice[] files = ((RowLevelScan) scan).files();
            for (int i = 0; i < files.length; i++) {
                String location = files[i].location;
                Object known = out.put(Long.valueOf(FileHash.of(location)), location);
                if (known != null && !known.equals(location)) {
                    throw new IllegalStateException(
                        "two files of one hash: " + known + " and " + location);
                }
            }
        }
        return out;
    }

    public NamedReference[] requiredMetadataAttributes() {
        List names = (List) facts.get("metadata");
        NamedReference[] out = new NamedReference[names.size()];
        for (int i = 0; i < out.length; i++) {
            out[i] = Expressions.column((String) names.get(i));
        }
        return out;
    }

    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
        refuseOthers(info.schema());
        return new ReplacementWrite.Builder(this);
    }

    /**
     * Spark hands columns that the table has beside its own on to the writer, as if they were some
     * of them, where a condition of UPDATE or MERGE names them.
     */
    final void refuseOthers(StructType rows) {
        Set own = new HashSet(Arrays.asList(table.schema().fieldNames()));
        String[] names = rows.fieldNames();
        for (int i = 0; i < names.length; i++) {
            if (!own.contains(names[i])) {
                throw new UnsupportedOperationException(
                    command + " of " + table.name() + ": its conditions cannot name what a row has"
                    + " beside the columns of the table, like _file, _pos or _metadata; find the"
                    + " rows in a subquery: WHERE id IN (SELECT id FROM " + table.name()
                    + " WHERE _pos = 0)");
            }
        }
    }

    /** Makes the operation that the table's properties ask for. */
    static final class Builder implements RowLevelOperationBuilder {
        private final WritableTable table;
        private final Answerer answerer;
        private final RowLevelOperation.Command command;

        Builder(WritableTable table, Answerer answerer, RowLevelOperation.Command command) {
            this.table = table;
            this.answerer = answerer;
            this.command = command;
        }

        public RowLevelOperation build() {
            Map facts = answerer.map("facts", null);
            if (Boolean.TRUE.equals(facts.get("merge_on_read"))) {
                return new RowLevelDelta(table, answerer, command, facts);
            }
            if (command == RowLevelOperation.Command.MERGE) {
                KeptOnce.install();
            }
            return new RowLevelChange(table, answerer, command, facts);
        }
    }
}
