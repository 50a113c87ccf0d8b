package lakehouse.spark;

import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.channels.Channels;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import org.apache.parquet.io.PositionOutputStream;

/** A new file of a local disk, synced with its folders. */
final class LocalFile extends NewFile {
    private final Path path;
    private Stream stream;

    LocalFile(String path) {
        this.path = Paths.get(path);
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
        path.toFile().delete();
    }

    byte[] footer() throws IOException {
        RandomAccessFile file = new RandomAccessFile(path.toFile(), "r");
        try {
            long size = file.length();
            file.seek(size - 8);
            int length = Integer.reverseBytes(file.readInt());
            byte[] footer = new byte[length];
            file.seek(size - 8 - length);
            file.readFully(footer);
            return footer;
        } finally {
            file.close();
        }
    }

    PositionOutputStream open() throws IOException {
        ArrayList folders = new ArrayList();
        Path folder = path.getParent();
        folders.add(folder);
        while (!Files.exists(folder)) {
            folder = folder.getParent();
            folders.add(folder);
        }
        Files.createDirectories(path.getParent());
        stream = new Stream(path, folders);
        return stream;
    }

    public String getPath() {
        return path.toString();
    }

    static final class Stream extends PositionOutputStream {
        private final Path path;
        private final FileChannel channel;
        private final BufferedOutputStream buffered;
        private final List folders;
        private long position;
        private boolean closed;

        Stream(Path path, List folders) throws IOException {
            this.path = path;
            this.channel = FileChannel.open(
                path, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE);
            this.buffered = new BufferedOutputStream(Channels.newOutputStream(channel), 262144);
            this.folders = folders;
        }

        public long getPos() {
            return position;
        }

        public void write(int value) throws IOException {
            try {
                buffered.write(value);
            } catch (IOException error) {
                throw cannotWrite(path.toString(), error);
            }
            position++;
        }

        public void write(byte[] data, int from, int length) throws IOException {
            try {
                buffered.write(data, from, length);
            } catch (IOException error) {
                throw cannotWrite(path.toString(), error);
            }
            position += length;
        }

        public void flush() throws IOException {
        }

        /** Closes without a word; the file is deleted next. */
        void forget() {
            closed = true;
            try {
                channel.close();
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
                try {
                    buffered.flush();
                    channel.force(true);
                } finally {
                    channel.close();
                }
                for (Object folder : folders) {
                    sync((Path) folder);
                }
            } catch (IOException error) {
                throw cannotWrite(path.toString(), error);
            }
        }

        private static void sync(Path folder) throws IOException {
            FileChannel opened = FileChannel.open(folder, StandardOpenOption.READ);
            try {
                opened.force(true);
            } finally {
                opened.close();
            }
        }
    }
}
