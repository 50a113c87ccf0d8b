package lakehouse.spark;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.LocalDate;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.UUID;
import org.apache.spark.QueryContext;
import org.apache.spark.SparkRuntimeException;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.hash.Murmur3_x86_32;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Iceberg's partition transforms on the values that Spark holds (specification: Partition
 * Transforms).
 */
public final class Transforms {
    private static final long DAY_US = 86400000000L;
    private static final long HOUR_US = 3600000000L;

    private Transforms() {
    }

    // bucket: a 32-bit murmur3 hash with seed 0

    public static int hash(long value) {
        return Murmur3_x86_32.hashLong(value, 0);
    }

    public static int hash(UTF8String value) {
        return Murmur3_x86_32.hashUnsafeBytes2(
            value.getBaseObject(), value.getBaseOffset(), value.numBytes(), 0);
    }

    public static int hash(byte[] value) {
        return Murmur3_x86_32.hashUnsafeBytes2(
            value, Platform.BYTE_ARRAY_OFFSET, value.length, 0);
    }

    /** Of the shortest two's complement of the unscaled value. */
    public static int hash(Decimal value) {
        return hash(value.toJavaBigDecimal().unscaledValue().toByteArray());
    }

    public static int bucket(int hash, int buckets) {
        if (buckets <= 0) {
            throw wrong("bucket[" + buckets + "]: the number of buckets must be above zero");
        }
        return (hash & Integer.MAX_VALUE) % buckets;
    }

    // truncate

    /** The width, where it is one. */
    private static int wide(int width) {
        if (width <= 0) {
            throw wrong("truncate[" + width + "]: the width must be above zero");
        }
        return width;
    }

    public static int truncate(int value, int width) {
        int over = Math.floorMod(value, wide(width));
        if (value < Integer.MIN_VALUE + over) {
            throw outside(value, width);
        }
        return value - over;
    }

    public static long truncate(long value, int width) {
        long over = Math.floorMod(value, (long) wide(width));
        if (value < Long.MIN_VALUE + over) {
            throw outside(value, width);
        }
        return value - over;
    }

    /** As the same value is refused by Python (`failures.py`). */
    private static Outside outside(long value, int width) {
        String message = "truncate[" + width + "] of " + value + " lies outside its result type;"
            + " the value cannot be partitioned or sorted by it";
        HashMap told = new HashMap();
        told.put("type", "InvalidInputError");
        told.put("message", message);
        told.put("retryable", Boolean.FALSE);
        byte[] json = Answerer.json(told).getBytes(StandardCharsets.UTF_8);
        return new Outside(
            "lakehouse-failure:" + Base64.getEncoder().encodeToString(json) + ": ", message);
    }

    /** A value without a result, as the driver's Python recognizes it. */
    static final class Outside extends IllegalArgumentException {
        private final String told;

        Outside(String mark, String told) {
            super(mark + told);
            this.told = told;
        }

        /** For a function, whose caller may be anybody. */
        SparkRuntimeException ofSpark() {
            return wrong(told);
        }
    }

    /** As `raise_error` raises it: an error of Spark's wherever the function runs. */
    private static SparkRuntimeException wrong(String message) {
        return new SparkRuntimeException(
            "USER_RAISED_EXCEPTION",
            new scala.collection.immutable.Map.Map1("errorMessage", message),
            null,
            new QueryContext[0],
            "");
    }

    public static UTF8String truncate(UTF8String value, int width) {
        return value.substring(0, wide(width));
    }

    public static byte[] truncate(byte[] value, int width) {
        return value.length <= wide(width) ? value : Arrays.copyOf(value, width);
    }

    public static Decimal truncate(Decimal value, int width) {
        BigDecimal exact = value.toJavaBigDecimal();
        BigInteger left = exact.unscaledValue().mod(BigInteger.valueOf(wide(width)));
        BigDecimal cut = new BigDecimal(exact.unscaledValue().subtract(left), exact.scale());
        return Decimal.apply(new scala.math.BigDecimal(cut), value.precision(), value.scale());
    }

    // units of time since 1970, of days and of microseconds

    public static int yearsOfDays(int days) {
        return LocalDate.ofEpochDay(days).getYear() - 1970;
    }

    public static int monthsOfDays(int days) {
        LocalDate date = LocalDate.ofEpochDay(days);
        return (date.getYear() - 1970) * 12 + date.getMonthValue() - 1;
    }

    public static int days(long micros) {
        return (int) Math.floorDiv(micros, DAY_US);
    }

    public static int hours(long micros) {
        return (int) Math.floorDiv(micros, HOUR_US);
    }

    /** The sixteen bytes of a uuid that Spark holds as text. */
    public static byte[] uuid(UTF8String text) {
        String given = text.toString();
        if (given.length() != 36) {
            throw new IllegalArgumentException("not a uuid: " + given);
        }
        UUID value = UUID.fromString(given);
        return ByteBuffer.allocate(16).putLong(value.getMostSignificantBits())
            .putLong(value.getLeastSignificantBits()).array();
    }
}
