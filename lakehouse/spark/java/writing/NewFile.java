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

    private Bytes bytes;

    /** Bytes so far. */
    long written() {
        return bytes == null ? 0L : bytes.getPos();
    }

    /** Closes without a word; the file is deleted next. */
    void forget() {
        if (bytes != null) {
            bytes.forget();
        }
    }

    /** Deletes the file, if it is there. */
    abstract void delete();

    /** Parquet's footer of the closed file. */
    abstract byte[] footer() throws IOException;

    /** Where its bytes go. */
    abstract Bytes open() throws IOException;

    public PositionOutputStream create(long ignored) throws IOException {
        try {
            bytes = open();
        } catch (IOException error) {
            throw cannotWrite(getPath(), error);
        }
        return bytes;
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

    /** The bytes of a file, which are counted; an error names the file. */
    abstract static class Bytes extends PositionOutputStream {
        private final String path;
        private final byte[] one = new byte[1];
        private long position;
        private boolean closed;

        Bytes(String path) {
            this.path = path;
        }

        abstract void put(byte[] data, int from, int length) throws IOException;

        /** The file is whole, and is to stay. */
        abstract void finish() throws IOException;

        /** It is not to become a file. */
        abstract void abandon() throws IOException;

        public final long getPos() {
            return position;
        }

        public final void write(int value) throws IOException {
            one[0] = (byte) value;
            write(one, 0, 1);
        }

        public final void write(byte[] data, int from, int length) throws IOException {
            try {
                put(data, from, length);
            } catch (IOException error) {
                throw cannotWrite(path, error);
            }
            position += length;
        }

        public final void flush() throws IOException {
        }

        final void forget() {
            closed = true;
            try {
                abandon();
            } catch (IOException error) {
                position = -1L; // deleted next, whatever became of it
            }
        }

        public final void close() throws IOException {
            if (closed) {
                return;
            }
            closed = true;
            try {
                finish();
            } catch (IOException error) {
                throw cannotWrite(path, error);
            }
        }
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
