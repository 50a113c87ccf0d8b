package lakehouse.spark;

import java.nio.charset.StandardCharsets;
import org.apache.spark.sql.catalyst.expressions.XXH64;
import org.apache.spark.unsafe.Platform;

/**
 * A data file as one number, for rows on their way through a statement that changes them: its
 * location would be most of what a row weighs in a shuffle.
 */
final class FileHash {
    /** The hidden column that holds it. */
    static final String COLUMN = "_lakehouse_file";

    private FileHash() {
    }

    static long of(String location) {
        byte[] bytes = location.getBytes(StandardCharsets.UTF_8);
        return XXH64.hashUnsafeBytes(bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length, 42L);
    }
}
