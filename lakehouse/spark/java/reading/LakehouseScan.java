package lakehouse.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomSumMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.colstats.ColumnStatistics;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;

/**
 * A query's scan of a table: planned by Python when somebody asks for its size or its files, once.
 */
public class LakehouseScan implements Scan, Batch, SupportsReportStatistics {
    final LakehouseTable table;
    final StructType required;
    final String filters;
    private final String description;
    private final List rowGroupFilters;
    /** What this is a stream of, if it is one, and the options of the read. */
    LakehouseTable streamed;
    Map options;
    private boolean isStream;
    private FilePlan plan;
    private Scan.ColumnarSupportMode columnar;

    LakehouseScan(
            LakehouseTable table, StructType required, String filters, String description,
            List rowGroupFilters) {
        this.table = table;
        this.required = required;
        this.filters = filters;
        this.description = description;
        this.rowGroupFilters = rowGroupFilters;
    }

    /** The files of another scan, planned already or not, for other columns. */
    LakehouseScan(LakehouseScan asked, StructType required) {
        this(asked.table, required, asked.filters, asked.description, asked.rowGroupFilters);
        this.plan = asked.plan;
    }

    public StructType readSchema() {
        return required;
    }

    public String description() {
        return "lakehouse" + (description.isEmpty() ? "" : " [files by " + description + "]");
    }

    public Batch toBatch() {
        return this;
    }

    public MicroBatchStream toMicroBatchStream(String checkpoint) {
        if (streamed == null || !streamed.is("streams")) {
            throw new UnsupportedOperationException(table.name()
                + " is one point of a table's history, to which no rows come: stream the table");
        }
        isStream = true;
        return new RowStream(
            streamed.name(), streamed.answerer.answerer("stream", options), columns());
    }

    synchronized FilePlan plan() {
        if (plan == null) {
            HashMap question = new HashMap();
            question.put("filters", filters);
            question.put("columns", columns());
            plan = FilePlan.parse(planner().text("plan", question));
        }
        return plan;
    }

    /** Names of what is read; some need details of each file. */
    List columns() {
        return Arrays.asList(required.fieldNames());
    }

    /** Who plans the files. */
    Answerer planner() {
        return table.answerer;
    }

    /** The files that are read. */
    DataFileSlice[] files() {
        return plan().files;
    }

    public InputPartition[] planInputPartitions() {
        return Slicing.of(table, files(), SparkSession.active()).groups(files());
    }

    /**
     * Spark asks whenever it copies a plan. Without an answer it would look for it in all tasks and
     * make their readers, each of which broadcasts Hadoop's settings.
     */
    public synchronized Scan.ColumnarSupportMode columnarSupportMode() {
        if (isStream) {
            return Scan.ColumnarSupportMode.UNSUPPORTED;
        }
        if (columnar == null) {
            boolean deletes = table.number("rows") < 0L && plan().deletes;
            columnar = DataFileReaderFactory.isColumnar(SparkSession.active(), table, required,
                deletes) ? Scan.ColumnarSupportMode.SUPPORTED : Scan.ColumnarSupportMode.UNSUPPORTED;
        }
        return columnar;
    }

    public PartitionReaderFactory createReaderFactory() {
        return DataFileReaderFactory.of(SparkSession.active(), table, required, rowGroupFilters,
            plan());
    }

    /**
     * Rows take at least their width in memory, however well files are compressed: Spark broadcasts
     * what it believes to be small.
     */
    public Statistics estimateStatistics() {
        long all = table.number("bytes");
        long rows = table.number("rows");
        long records = table.number("records");
        if (!filters.equals("[]")) {
            all = plan().bytes;
            rows = plan().deletes || rows < 0L ? -1L : plan().rows;
            records = plan().rows;
        }
        double share = (double) required.defaultSize() / Math.max(1, table.schema().defaultSize());
        double inFiles = Math.ceil(all * Math.min(1.0, share));
        double inMemory = (double) records * (8 + required.defaultSize());
        return new Estimate((long) Math.max(inFiles, inMemory), rows,
            (Map) table.facts.get("distinct"));
    }

    public CustomMetric[] supportedCustomMetrics() {
        return new CustomMetric[] {new NumberOfFiles()};
    }

    public CustomTaskMetric[] reportDriverMetrics() {
        return new CustomTaskMetric[] {new FilesRead(files().length)};
    }

    /** Scans of the same rows are one: exchanges over them are reused. */
    public boolean equals(Object other) {
        if (other == null || other.getClass() != getClass()) {
            return false;
        }
        LakehouseScan that = (LakehouseScan) other;
        return that.table.equals(table) && that.required.equals(required)
            && that.filters.equals(filters);
    }

    public int hashCode() {
        return table.hashCode() * 31 + filters.hashCode();
    }

    /** What the optimizer is told; rows are -1 where nobody knows. */
    static final class Estimate implements Statistics {
        private final long bytes;
        private final long rows;
        private final Map distinct;

        Estimate(long bytes, long rows, Map distinct) {
            this.bytes = bytes;
            this.rows = rows;
            this.distinct = distinct;
        }

        public OptionalLong sizeInBytes() {
            return OptionalLong.of(bytes);
        }

        public OptionalLong numRows() {
            return rows < 0L ? OptionalLong.empty() : OptionalLong.of(rows);
        }

        public Map columnStats() {
            HashMap out = new HashMap();
            for (Object one : rows < 0L ? Collections.emptySet() : distinct.entrySet()) {
                Map.Entry entry = (Map.Entry) one;
                long found = Math.min(rows, ((Number) entry.getValue()).longValue());
                out.put(
                    Expressions.column("`" + ((String) entry.getKey()).replace("`", "``") + "`"),
                    new Distinct(found));
            }
            return out;
        }
    }

    /** Nobody counted nulls over all files, and Spark ignores a distinct count without them. */
    static final class Distinct implements ColumnStatistics {
        private final long count;

        Distinct(long count) {
            this.count = count;
        }

        public OptionalLong distinctCount() {
            return OptionalLong.of(count);
        }

        public OptionalLong nullCount() {
            return OptionalLong.of(0L);
        }
    }

    /** Shown in Spark's UI. */
    public static final class NumberOfFiles extends CustomSumMetric {
        public NumberOfFiles() {
        }

        public String name() {
            return "numFiles";
        }

        public String description() {
            return "number of files read";
        }
    }

    static final class FilesRead implements CustomTaskMetric {
        private final long files;

        FilesRead(long files) {
            this.files = files;
        }

        public String name() {
            return "numFiles";
        }

        public long value() {
            return files;
        }
    }
}
