package lakehouse.spark;

import java.io.Closeable;
import java.io.DataInputStream;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.zip.CRC32;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.roaringbitmap.RoaringBitmap;
import scala.Function1;

/** Reads deletion vectors and position delete files in tasks, and remembers the last ones. */
final class PositionDeletes {
    private static final int MAGIC = 1681511377;
    private static final int REMEMBERED = 256;
    private static final Map KNOWN = Collections.synchronizedMap(new Remembered());

    private PositionDeletes() {
    }

    /** Of a position delete file (specification: Position Delete Files). */
    static StructType schema() {
        return new StructType(new StructField[] {
            field("file_path", DataTypes.StringType, 2147483546L),
            field("pos", DataTypes.LongType, 2147483545L)});
    }

    private static StructField field(
            String name, org.apache.spark.sql.types.DataType type, long id) {
        return new StructField(name, type, false,
            new MetadataBuilder().putLong(OutputColumns.FIELD_ID, id).build());
    }

    /** What deletes, each told as a map, delete from a data file. */
    static DeletedPositions load(
            String dataFile, List deletes, Configuration hadoop, Function1 readParquet) {
        DeletedPositions all = new DeletedPositions();
        for (Object one : deletes) {
            Map told = (Map) one;
            String location = (String) told.get("path");
            Object key = location + "@" + told.get("offset");
            Map found = (Map) KNOWN.get(key);
            if (found == null) {
                found = told.get("offset") == null
                    ? fromParquet(location, ((Number) told.get("bytes")).longValue(), readParquet)
                    : Collections.singletonMap(told.get("target"), vector(location, told, hadoop));
                KNOWN.put(key, found);
            }
            DeletedPositions positions = (DeletedPositions) found.get(dataFile);
            if (positions != null) {
                all.add(positions);
            }
        }
        return all.isEmpty() ? null : all;
    }

    private static DeletedPositions vector(String location, Map told, Configuration hadoop) {
        long offset = ((Number) told.get("offset")).longValue();
        byte[] blob = new byte[((Number) told.get("length")).intValue()];
        Path path = new Path(Locations.forHadoop(location));
        try {
            FSDataInputStream file = path.getFileSystem(hadoop).open(path);
            try {
                file.readFully(offset, blob);
            } finally {
                file.close();
            }
            return decoded(blob, location, ((Number) told.get("cardinality")).longValue());
        } catch (IOException error) {
            throw new java.io.UncheckedIOException("deletion vector in " + location, error);
        }
    }

    /** Length, magic, 64-bit Roaring bitmap, CRC-32 of magic and bitmap (specification: Puffin). */
    private static DeletedPositions decoded(byte[] blob, String location, long cardinality)
            throws IOException {
        CRC32 checksum = new CRC32();
        checksum.update(blob, 4, blob.length - 8);
        ByteBuffer big = ByteBuffer.wrap(blob);
        ByteBuffer little = ByteBuffer.wrap(blob).order(ByteOrder.LITTLE_ENDIAN);
        if (big.getInt(0) != blob.length - 8 || little.getInt(4) != MAGIC
                || big.getInt(blob.length - 4) != (int) checksum.getValue()) {
            throw new IOException("is damaged: length, magic number or checksum do not fit");
        }
        DeletedPositions found = new DeletedPositions();
        long parts = little.getLong(8);
        int at = 16;
        for (long i = 0; i < parts; i++) {
            int upper = little.getInt(at);
            RoaringBitmap part = new RoaringBitmap();
            part.deserialize(new DataInputStream(
                new ByteArrayInputStream(blob, at + 4, blob.length - 4 - at - 4)));
            found.add(upper, part);
            at += 4 + part.serializedSizeInBytes();
        }
        if (found.cardinality() != cardinality) {
            throw new IOException("holds " + found.cardinality() + " positions, its manifest entry"
                + " says " + cardinality);
        }
        return found;
    }

    private static Map fromParquet(String location, long bytes, Function1 readParquet) {
        HashMap found = new HashMap();
        DataFileSlice whole = new DataFileSlice(location, 0L, bytes, bytes, null);
        scala.collection.Iterator rows =
            DataFileReaderFactory.opened(readParquet, whole.partitionedFile());
        try {
            String last = null;
            DeletedPositions positions = null;
            while (rows.hasNext()) {
                InternalRow row = (InternalRow) rows.next();
                String path = row.getUTF8String(0).toString();
                if (!path.equals(last)) {
                    positions = (DeletedPositions) found.get(path);
                    if (positions == null) {
                        positions = new DeletedPositions();
                        found.put(path, positions);
                    }
                    last = path;
                }
                positions.add(row.getLong(1));
            }
        } finally {
            closed(rows);
        }
        return found;
    }

    private static void closed(Object rows) {
        if (rows instanceof Closeable) {
            try {
                ((Closeable) rows).close();
            } catch (IOException error) {
                throw new java.io.UncheckedIOException(error);
            }
        }
    }

    /** The last used, by location and offset. */
    static final class Remembered extends LinkedHashMap {
        Remembered() {
            super(16, 0.75f, true);
        }

        protected boolean removeEldestEntry(Map.Entry eldest) {
            return size() > REMEMBERED;
        }
    }
}
