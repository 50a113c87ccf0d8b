package lakehouse.spark;

import java.io.IOException;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;

/** The data files that one task writes. */
interface RowFiles {
    /** Takes a row, which the caller may use again. */
    void write(InternalRow row) throws IOException;

    /** Completes all files; each is told as a JSON object. */
    List finish() throws IOException;

    /** Leaves nothing behind. */
    void abort();
}
