package lakehouse.spark;

import java.io.Serializable;
import java.util.Collections;
import java.util.Map;
import org.apache.hadoop.fs.Path;
import org.apache.spark.paths.SparkPath;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.PartitionedFile;

/** A range of bytes of a data file, and what a task has to know of the file. */
final class DataFileSlice implements Serializable {
    /** As the table's metadata spells it. */
    final String location;
    final long start;
    final long length;
    final long fileBytes;
    private final String details;

    DataFileSlice(String location, long start, long length, long fileBytes, String details) {
        this.location = location;
        this.start = start;
        this.length = length;
        this.fileBytes = fileBytes;
        this.details = details;
    }

    DataFileSlice range(long from, long bytes) {
        return new DataFileSlice(location, from, bytes, fileBytes, details);
    }

    /** What is beside the rows (see `FilePlan`). */
    Map details() {
        return details == null ? Collections.emptyMap() : (Map) Answerer.parsed(details, Map.class);
    }

    boolean hasDetails() {
        return details != null;
    }

    Path path() {
        return new Path(Locations.forHadoop(location));
    }

    PartitionedFile partitionedFile() {
        return new PartitionedFile(
            InternalRow.empty(), SparkPath.fromPath(path()), start, length, new String[0], 0L,
            fileBytes, Scala.map(Collections.emptyMap()));
    }
}
