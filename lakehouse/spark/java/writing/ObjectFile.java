package lakehouse.spark;

import java.io.IOException;
import java.util.Arrays;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.io.PositionOutputStream;

/**
 * A new object by one of Hadoop's file systems (s3a, abfss, gs), which is there when its stream is
 * closed and not before; nothing is renamed, and no folder is made or looked for.
 */
final class ObjectFile extends NewFile {
    private static final int TAIL = 262144;
    private final Path path;
    private final Configuration hadoop;
    private Stream stream;

    ObjectFile(String location, Configuration hadoop) {
        this.path = new Path(location);
        this.hadoop = hadoop;
    }

    long written() {
        return stream == null ? 0L : stream.getPos();
    }

    void forget() {
        if (stream != null) {
            stream.forget();
        }
    }

    void delete() {
        try {
            path.getFileSystem(hadoop).delete(path, false);
        } catch (IOException error) {
            stream = null; // it stays, in no snapshot: maintenance deletes it
        }
    }

    PositionOutputStream open() throws IOException {
        // names are new: S3A need not ask what is there
        stream = new Stream(
            path,
            (FSDataOutputStream) path.getFileSystem(hadoop).createFile(path)
                .overwrite(true)
                .recursive()
                .opt("fs.s3a.create.performance", true)
                .build());
        return stream;
    }

    public String getPath() {
        return path.toString();
    }

    /** Out of what was written last; a long one is read again. */
    byte[] footer() throws IOException {
        byte[] end = stream.tail();
        int size = end.length;
        int length = (end[size - 8] & 255) | (end[size - 7] & 255) << 8
            | (end[size - 6] & 255) << 16 | (end[size - 5] & 255) << 24;
        if (length + 8 <= size) {
            return Arrays.copyOfRange(end, size - 8 - length, size - 8);
        }
        byte[] footer = new byte[length];
        FSDataInputStream input = path.getFileSystem(hadoop).open(path);
        try {
            input.readFully(stream.getPos() - 8 - length, footer);
        } finally {
            input.close();
        }
        return footer;
    }

    static final class Stream extends PositionOutputStream {
        private final Path path;
        private final FSDataOutputStream out;
        private byte[] last = new byte[2 * TAIL];
        private int kept;
        private long position;
        private boolean closed;

        Stream(Path path, FSDataOutputStream out) {
            this.path = path;
            this.out = out;
        }

        public long getPos() {
            return position;
        }

        public void write(int value) throws IOException {
            byte[] one = new byte[1];
            one[0] = (byte) value;
            write(one, 0, 1);
        }

        public void write(byte[] data, int from, int length) throws IOException {
            try {
                out.write(data, from, length);
            } catch (IOException error) {
                throw cannotWrite(path.toString(), error);
            }
            position += length;
            keep(data, from, length);
        }

        private void keep(byte[] data, int from, int length) {
            int count = Math.min(length, TAIL);
            if (kept + count > last.length) {
                int stays = TAIL - count;
                System.arraycopy(last, kept - stays, last, 0, stays);
                kept = stays;
            }
            System.arraycopy(data, from + length - count, last, kept, count);
            kept += count;
        }

        byte[] tail() {
            return Arrays.copyOf(last, kept);
        }

        public void flush() throws IOException {
        }

        /** What was written is not to become an object. */
        void forget() {
            closed = true;
            try {
                if (out.hasCapability("fs.capability.outputstream.abortable")) {
                    out.abort();
                } else {
                    out.close();
                }
            } catch (IOException error) {
                position = -1L;
            }
        }

        public void close() throws IOException {
            if (closed) {
                return;
            }
            closed = true;
            try {
                out.close();
            } catch (IOException error) {
                throw cannotWrite(path.toString(), error);
            }
        }
    }
}
