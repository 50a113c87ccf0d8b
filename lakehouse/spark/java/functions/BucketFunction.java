package lakehouse.spark;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.types.UTF8String;

/** bucket(buckets, value). */
public final class BucketFunction extends BoundTransform {
    BucketFunction(DataType type) {
        super("bucket", true, type, DataTypes.IntegerType);
    }

    public static int invoke(int buckets, int value) {
        return Transforms.bucket(Transforms.hash((long) value), buckets);
    }

    public static int invoke(int buckets, long value) {
        return Transforms.bucket(Transforms.hash(value), buckets);
    }

    public static Integer invoke(int buckets, UTF8String value) {
        return value == null ? null
            : Integer.valueOf(Transforms.bucket(Transforms.hash(value), buckets));
    }

    public static Integer invoke(int buckets, byte[] value) {
        return value == null ? null
            : Integer.valueOf(Transforms.bucket(Transforms.hash(value), buckets));
    }

    public static Integer invoke(int buckets, Decimal value) {
        return value == null ? null
            : Integer.valueOf(Transforms.bucket(Transforms.hash(value), buckets));
    }
}
