package lakehouse.spark;

import java.io.IOException;
import java.util.Arrays;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * A new object by one of Hadoop's file systems (s3a, abfss, gs), which is there when its stream is
 * closed and not before; nothing is renamed, and no folder is made or looked for.
 */
final class ObjectFile extends NewFile {
    private static final int TAIL = 262144;
    private final Path path;
    private final Configuration hadoop;
    private ObjectBytes written;

    ObjectFile(String location, Configuration hadoop) {
        this.path = new Path(location);
        this.hadoop = hadoop;
    }

    void delete() {
        try {
            path.getFileSystem(hadoop).delete(path, false);
        } catch (IOException error) {
            written = null; // it stays, in no snapshot: maintenance deletes it
        }
    }

    Bytes open() throws IOException {
        // names are new: S3A need not ask what is there
        written = new ObjectBytes(
            path.toString(),
            (FSDataOutputStream) path.getFileSystem(hadoop).createFile(path)
                .overwrite(true)
                .recursive()
                .opt("fs.s3a.create.performance", true)
                .build());
        return written;
    }

    public String getPath() {
        return path.toString();
    }

    /** Out of what was written last; a long one is read again. */
    byte[] footer() throws IOException {
        byte[] end = written.tail();
        int size = end.length;
        int length = (end[size - 8] & 255) | (end[size - 7] & 255) << 8
            | (end[size - 6] & 255) << 16 | (end[size - 5] & 255) << 24;
        if (length + 8 <= size) {
            return Arrays.copyOfRange(end, size - 8 - length, size - 8);
        }
        byte[] footer = new byte[length];
        FSDataInputStream input = path.getFileSystem(hadoop).open(path);
        try {
            input.readFully(written.getPos() - 8 - length, footer);
        } finally {
            input.close();
        }
        return footer;
    }

    private static final class ObjectBytes extends Bytes {
        private final FSDataOutputStream out;
        private byte[] last = new byte[2 * TAIL];
        private int kept;

        ObjectBytes(String path, FSDataOutputStream out) {
            super(path);
            this.out = out;
        }

        void put(byte[] data, int from, int length) throws IOException {
            out.write(data, from, length);
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

        void abandon() throws IOException {
            if (out.hasCapability("fs.capability.outputstream.abortable")) {
                out.abort();
            } else {
                out.close();
            }
        }

        void finish() throws IOException {
            out.close();
        }
    }
}
