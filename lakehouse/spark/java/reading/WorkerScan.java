package lakehouse.spark;

import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.OptionalLong;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.V1Scan;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.TableScan;
import org.apache.spark.sql.types.StructType;

/**
 * Rows that Spark cannot read itself and gets as a frame: files on storages that Hadoop has no file
 * system for, files with equality deletes or without field ids (all read by Python workers),
 * metadata tables.
 */
final class WorkerScan implements V1Scan, SupportsReportStatistics {
    private final LakehouseScan asked;
    private final LakehouseTable table;
    private final StructType required;
    private final String filters;

    WorkerScan(LakehouseScan asked, StructType required) {
        this.asked = asked;
        this.table = asked.table;
        this.required = required;
        this.filters = asked.filters;
    }

    public MicroBatchStream toMicroBatchStream(String checkpoint) {
        return asked.toMicroBatchStream(checkpoint);
    }

    public StructType readSchema() {
        return required;
    }

    public String description() {
        return "lakehouse by workers";
    }

    public Statistics estimateStatistics() {
        return new LakehouseScan.Estimate(table.number("bytes"), -1L, new HashMap());
    }

    public BaseRelation toV1TableScan(SQLContext context) {
        return new Rows(context, this);
    }

    Dataset frame() {
        HashMap question = new HashMap();
        question.put("filters", filters);
        question.put("columns", Arrays.asList(required.fieldNames()));
        question.put("splits", table.facts.get("splits"));
        return (Dataset) table.answerer.object("rows", question);
    }

    /** The frame's rows, as Spark holds them. */
    static final class Rows extends BaseRelation implements TableScan {
        private final SQLContext context;
        private final WorkerScan scan;

        Rows(SQLContext context, WorkerScan scan) {
            this.context = context;
            this.scan = scan;
        }

        public SQLContext sqlContext() {
            return context;
        }

        public StructType schema() {
            return scan.readSchema();
        }

        public boolean needConversion() {
            return false;
        }

        public RDD buildScan() {
            return scan.frame().queryExecution().toRdd();
        }
    }
}
