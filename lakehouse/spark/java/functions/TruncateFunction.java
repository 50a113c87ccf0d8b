package lakehouse.spark;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.types.UTF8String;

/** truncate(width, value). */
public final class TruncateFunction extends BoundTransform {
    TruncateFunction(DataType type) {
        super("truncate", true, type, type);
    }

    public static int invoke(int width, int value) {
        try {
            return Transforms.truncate(value, width);
        } catch (Transforms.Outside error) {
            throw error.ofSpark();
        }
    }

    public static long invoke(int width, long value) {
        try {
            return Transforms.truncate(value, width);
        } catch (Transforms.Outside error) {
            throw error.ofSpark();
        }
    }

    public static UTF8String invoke(int width, UTF8String value) {
        return value == null ? null : Transforms.truncate(value, width);
    }

    public static byte[] invoke(int width, byte[] value) {
        return value == null ? null : Transforms.truncate(value, width);
    }

    public static Decimal invoke(int width, Decimal value) {
        return value == null ? null : Transforms.truncate(value, width);
    }
}
