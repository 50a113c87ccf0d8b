package lakehouse.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;

/** Rows that may change, of files that Spark cannot read: by Python workers. */
final class WorkerRowLevelScan extends RowLevelScan {
    private final WorkerReaderFactory factory = new WorkerReaderFactory();
    private ArrayList planned;
    private InputPartition[] partitions;

    WorkerRowLevelScan(RowLevelScan asked) {
        super(asked, OutputColumns.whole(asked.required, asked.table));
    }

    /** Anew when other files are left than when it was called before. */
    public synchronized InputPartition[] planInputPartitions() {
        ArrayList locations = new ArrayList();
        DataFileSlice[] files = files();
        for (int i = 0; i < files.length; i++) {
            locations.add(files[i].location);
        }
        if (!locations.equals(planned)) {
            HashMap question = new HashMap();
            question.put("files", locations);
            question.put("columns", Arrays.asList(required.fieldNames()));
            Dataset frame = (Dataset) planner().object("rows", question);
            partitions = factory.partitions(frame);
            planned = locations;
        }
        return partitions;
    }

    public Scan.ColumnarSupportMode columnarSupportMode() {
        return Scan.ColumnarSupportMode.UNSUPPORTED;
    }

    public PartitionReaderFactory createReaderFactory() {
        planInputPartitions();
        return factory;
    }
}
