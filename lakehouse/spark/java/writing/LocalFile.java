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

/** A new file of a local disk, synced with its folders. */
final class LocalFile extends NewFile {
    private final Path path;

    LocalFile(String path) {
        this.path = Paths.get(path);
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

    Bytes open() throws IOException {
        ArrayList folders = new ArrayList();
        Path folder = path.getParent();
        folders.add(folder);
        while (!Files.exists(folder)) {
            folder = folder.getParent();
            folders.add(folder);
        }
        Files.createDirectories(path.getParent());
        return new SyncedBytes(path, folders);
    }

    public String getPath() {
        return path.toString();
    }

    private static final class SyncedBytes extends Bytes {
        private final FileChannel channel;
        private final BufferedOutputStream buffered;
        private final List folders;

        SyncedBytes(Path path, List folders) throws IOException {
            super(path.toString());
            this.channel = FileChannel.open(
                path, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE);
            this.buffered = new BufferedOutputStream(Channels.newOutputStream(channel), 262144);
            this.folders = folders;
        }

        void put(byte[] data, int from, int length) throws IOException {
            buffered.write(data, from, length);
        }

        void abandon() throws IOException {
            channel.close();
        }

        void finish() throws IOException {
            try {
                buffered.flush();
                channel.force(true);
            } finally {
                channel.close();
            }
            for (Object folder : folders) {
                sync((Path) folder);
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
