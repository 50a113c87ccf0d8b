package lakehouse.spark;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.roaringbitmap.PeekableIntIterator;
import org.roaringbitmap.RoaringBitmap;

/** Positions of deleted rows of one data file: a bitmap for each value of the upper 32 bits. */
final class DeletedPositions {
    private final HashMap parts = new HashMap();
    private RoaringBitmap low;

    void add(long position) {
        part((int) (position >>> 32)).add((int) position);
    }

    void add(int upper, RoaringBitmap positions) {
        part(upper).or(positions);
    }

    void add(DeletedPositions other) {
        for (Object one : other.parts.entrySet()) {
            Map.Entry entry = (Map.Entry) one;
            add(((Integer) entry.getKey()).intValue(), (RoaringBitmap) entry.getValue());
        }
    }

    private RoaringBitmap part(int upper) {
        RoaringBitmap found = (RoaringBitmap) parts.get(Integer.valueOf(upper));
        if (found == null) {
            found = new RoaringBitmap();
            parts.put(Integer.valueOf(upper), found);
            if (upper == 0) {
                low = found;
            }
        }
        return found;
    }

    boolean contains(long position) {
        int upper = (int) (position >>> 32);
        RoaringBitmap part = upper == 0 ? low : (RoaringBitmap) parts.get(Integer.valueOf(upper));
        return part != null && part.contains((int) position);
    }

    long cardinality() {
        long total = 0L;
        for (Object part : parts.values()) {
            total += ((RoaringBitmap) part).getLongCardinality();
        }
        return total;
    }

    boolean isEmpty() {
        return cardinality() == 0L;
    }

    /** The portable form of a 64-bit Roaring bitmap, in base64. */
    String base64() throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        out.writeLong(Long.reverseBytes((long) parts.size()));
        for (Object one : new TreeMap(parts).entrySet()) {
            Map.Entry entry = (Map.Entry) one;
            out.writeInt(Integer.reverseBytes(((Integer) entry.getKey()).intValue()));
            RoaringBitmap part = (RoaringBitmap) entry.getValue();
            part.runOptimize();
            part.serialize(out);
        }
        return Base64.getEncoder().encodeToString(bytes.toByteArray());
    }

    /** The rows of a batch that are left, by their positions in the file; null when all are. */
    int[] left(ColumnVector positions, int rows) {
        if (rows == 0) {
            return null;
        }
        long first = positions.getLong(0);
        long last = positions.getLong(rows - 1);
        boolean below = low != null && parts.size() == 1 && last <= Integer.MAX_VALUE;
        if (below && !low.intersects(first, last + 1L)) {
            return null;
        }
        int[] out = new int[rows];
        int count = 0;
        if (below && last - first == rows - 1) {
            PeekableIntIterator gone = low.getIntIterator();
            gone.advanceIfNeeded((int) first);
            int row = 0;
            while (row < rows) {
                long next = gone.hasNext() ? (gone.next() & 0xFFFFFFFFL) - first : rows;
                while (row < next && row < rows) {
                    out[count++] = row++;
                }
                row++;
            }
        } else {
            for (int i = 0; i < rows; i++) {
                if (!contains(positions.getLong(i))) {
                    out[count++] = i;
                }
            }
        }
        return count == rows ? null : Arrays.copyOf(out, count);
    }
}
