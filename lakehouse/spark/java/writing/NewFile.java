package lakehouse.spark;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.util.Base64;
import java.util.HashMap;
import org.apache.parquet.io.OutputFile;
import org.apache.parquet.io.PositionOutputStream;

/** A file that is new, and durable when its stream is closed. */
abstract class NewFile implements OutputFile {
    /** On a local disk, or where Hadoop has a file system for. */
    static NewFile at(String location, WriteOrder order) {
        return order.hadoop == null ? (NewFile) new LocalFile(location)
            : (NewFile) new ObjectFile(location, order.hadoop.value());
    }

    /** Bytes so far. */
    abstract long written();

    /** Closes without a word; the file is deleted next. */
    abstract void forget();

    /** Deletes the file, if it is there. */
    abstract void delete();

    /** Parquet's footer of the closed file. */
    abstract byte[] footer() throws IOException;

    abstract PositionOutputStream open() throws IOException;

    public PositionOutputStream create(long ignored) throws IOException {
        try {
            return open();
        } catch (IOException error) {
            throw cannotWrite(getPath(), error);
        }
    }

    public PositionOutputStream createOrOverwrite(long block) throws IOException {
        return create(block);
    }

    public boolean supportsBlockSize() {
        return false;
    }

    public long defaultBlockSize() {
        return 0L;
    }

    /** The error as `lakehouse.spark.jvm.failures.failure_of` finds it in the driver. */
    static IOException cannotWrite(String path, IOException error) {
        try {
            HashMap facts = new HashMap();
            facts.put("type", "StorageError");
            facts.put("message", "cannot write " + path + ": " + error.getMessage());
            facts.put("retryable", Boolean.FALSE);
            String mark = Base64.getEncoder()
                .encodeToString(new ObjectMapper().writeValueAsBytes(facts));
            return new IOException(
                "lakehouse-failure:" + mark + ": " + facts.get("message"), error);
        } catch (IOException other) {
            return error;
        }
    }
}
