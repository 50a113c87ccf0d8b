package lakehouse.spark;

import java.io.Closeable;
import java.io.IOException;
import java.util.Map;
import org.apache.spark.rdd.InputFileBlockHolder;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.execution.datasources.v2.FileDataSourceV2;
import org.apache.spark.unsafe.Platform;
import scala.runtime.AbstractFunction0;

/** Goes through the slices of a task, one after the other. */
abstract class FileReading implements PartitionReader {
    final DataFileReaderFactory factory;
    private final DataFileSlice[] slices;
    private int next;
    private scala.collection.Iterator open;
    DataFileSlice slice;
    Map details;
    /** Positions that are not shown; null for none. */
    DeletedPositions deleted;

    FileReading(DataFileSlice[] slices, DataFileReaderFactory factory) {
        this.slices = slices;
        this.factory = factory;
    }

    /** Errors are told as Spark tells those of its own files: with the name of the file. */
    public boolean next() {
        try {
            return advance();
        } catch (Exception error) {
            Platform.throwException(FileDataSourceV2.attachFilePath(new CurrentPath(), error));
            return false;
        }
    }

    private boolean advance() throws IOException {
        while (true) {
            while (open != null && open.hasNext()) {
                if (take(open.next())) {
                    return true;
                }
            }
            close();
            if (next == slices.length) {
                return false;
            }
            slice = slices[next++];
            details = slice.details();
            deleted = factory.deleted(slice, details);
            InputFileBlockHolder.set(slice.path().toUri().toString(), slice.start, slice.length);
            open = factory.open(slice);
            begin();
        }
    }

    /** A new slice begins. */
    abstract void begin();

    /** Takes what Parquet gave; false when nothing of it is shown. */
    abstract boolean take(Object found);

    public void close() throws IOException {
        if (open instanceof Closeable) {
            ((Closeable) open).close();
        }
        open = null;
    }

    final class CurrentPath extends AbstractFunction0 {
        public Object apply() {
            return slice == null ? "" : slice.path().toString();
        }
    }
}
