package lakehouse.spark;

import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.LocalDate;
import java.util.Base64;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.codegen.UnsafeRowWriter;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.types.UTF8String;

/** Computes the partition tuple of a row, as a row of its own that can be compared and hashed. */
final class PartitionKey {
    private static final int LONGEST_FOLDER = 200;
    private final WriteOrder.Field[] fields;
    private final UnsafeRowWriter writer;

    PartitionKey(WriteOrder.Field[] fields) {
        this.fields = fields;
        this.writer = new UnsafeRowWriter(fields.length);
    }

    /** The tuple; the next call writes over it. */
    UnsafeRow of(InternalRow row) {
        writer.reset();
        writer.zeroOutNullBytes();
        for (int i = 0; i < fields.length; i++) {
            write(i, fields[i], row);
        }
        return writer.getRow();
    }

    private void write(int at, WriteOrder.Field field, InternalRow row) {
        InternalRow holder = row;
        int[] path = field.path;
        for (int i = 0; i < path.length - 1; i++) {
            if (holder.isNullAt(path[i])) {
                writer.setNullAt(at);
                return;
            }
            holder = holder.getStruct(path[i], path[i + 1] + 1);
        }
        if (path.length == 0 || holder.isNullAt(path[path.length - 1])) {
            writer.setNullAt(at);
            return;
        }
        int ordinal = path[path.length - 1];
        String transform = field.transform;
        if (transform.equals("identity")) {
            identity(at, field, holder, ordinal);
        } else if (transform.equals("bucket")) {
            writer.write(at, Transforms.bucket(hash(field, holder, ordinal), field.width));
        } else if (transform.equals("truncate")) {
            truncate(at, field, holder, ordinal);
        } else {
            writer.write(at, unit(field, holder, ordinal));
        }
    }

    private void identity(int at, WriteOrder.Field field, InternalRow row, int ordinal) {
        String type = field.type;
        if (type.equals("boolean")) {
            writer.write(at, row.getBoolean(ordinal));
        } else if (type.equals("int") || type.equals("date")) {
            writer.write(at, row.getInt(ordinal));
        } else if (type.equals("long") || type.equals("timestamp")) {
            writer.write(at, row.getLong(ordinal));
        } else if (type.equals("time")) {
            writer.write(at, row.getLong(ordinal) / 1000L);
        } else if (type.equals("float")) {
            writer.write(at, row.getFloat(ordinal));
        } else if (type.equals("double")) {
            writer.write(at, row.getDouble(ordinal));
        } else if (type.equals("string")) {
            writer.write(at, row.getUTF8String(ordinal));
        } else if (type.equals("decimal")) {
            writer.write(at, row.getDecimal(ordinal, field.precision, field.scale),
                field.precision, field.scale);
        } else {
            writer.write(at, bytes(field, row, ordinal));
        }
    }

    private static byte[] bytes(WriteOrder.Field field, InternalRow row, int ordinal) {
        return field.type.equals("uuid") ? Transforms.uuid(row.getUTF8String(ordinal))
            : row.getBinary(ordinal);
    }

    private static int hash(WriteOrder.Field field, InternalRow row, int ordinal) {
        String type = field.type;
        if (type.equals("int") || type.equals("date")) {
            return Transforms.hash((long) row.getInt(ordinal));
        }
        if (type.equals("long") || type.equals("timestamp")) {
            return Transforms.hash(row.getLong(ordinal));
        }
        if (type.equals("time")) {
            return Transforms.hash(row.getLong(ordinal) / 1000L);
        }
        if (type.equals("string")) {
            return Transforms.hash(row.getUTF8String(ordinal));
        }
        if (type.equals("decimal")) {
            return Transforms.hash(row.getDecimal(ordinal, field.precision, field.scale));
        }
        return Transforms.hash(bytes(field, row, ordinal));
    }

    private void truncate(int at, WriteOrder.Field field, InternalRow row, int ordinal) {
        String type = field.type;
        if (type.equals("int")) {
            writer.write(at, Transforms.truncate(row.getInt(ordinal), field.width));
        } else if (type.equals("long")) {
            writer.write(at, Transforms.truncate(row.getLong(ordinal), field.width));
        } else if (type.equals("string")) {
            writer.write(at, Transforms.truncate(row.getUTF8String(ordinal), field.width));
        } else if (type.equals("decimal")) {
            Decimal value = row.getDecimal(ordinal, field.precision, field.scale);
            writer.write(at, Transforms.truncate(value, field.width), field.precision, field.scale);
        } else {
            writer.write(at, Transforms.truncate(row.getBinary(ordinal), field.width));
        }
    }

    private static int unit(WriteOrder.Field field, InternalRow row, int ordinal) {
        String transform = field.transform;
        if (transform.equals("hour")) {
            return Transforms.hours(row.getLong(ordinal));
        }
        int days = field.type.equals("date") ? row.getInt(ordinal)
            : Transforms.days(row.getLong(ordinal));
        if (transform.equals("day")) {
            return days;
        }
        return transform.equals("month") ? Transforms.monthsOfDays(days)
            : Transforms.yearsOfDays(days);
    }

    /** The values of a tuple as a JSON array: null, or the base64 of bytes or text. */
    String json(UnsafeRow key) {
        StringBuilder out = new StringBuilder("[");
        for (int i = 0; i < fields.length; i++) {
            out.append(i == 0 ? "" : ",");
            if (key.isNullAt(i)) {
                out.append("null");
            } else {
                Object value = value(key, i);
                byte[] told = value instanceof byte[] ? (byte[]) value
                    : String.valueOf(value).getBytes(StandardCharsets.UTF_8);
                out.append('"').append(Base64.getEncoder().encodeToString(told)).append('"');
            }
        }
        return out.append(']').toString();
    }

    private Object value(UnsafeRow key, int at) {
        WriteOrder.Field field = fields[at];
        boolean same = field.transform.equals("identity") || field.transform.equals("truncate");
        String type = same ? field.type : "int";
        if (type.equals("boolean")) {
            return Boolean.valueOf(key.getBoolean(at));
        }
        if (type.equals("int") || type.equals("date")) {
            return Integer.valueOf(key.getInt(at));
        }
        if (type.equals("long") || type.equals("timestamp") || type.equals("time")) {
            return Long.valueOf(key.getLong(at));
        }
        if (type.equals("float")) {
            return Float.valueOf(key.getFloat(at));
        }
        if (type.equals("double")) {
            return Double.valueOf(key.getDouble(at));
        }
        if (type.equals("string")) {
            return key.getUTF8String(at).toString();
        }
        if (type.equals("decimal")) {
            return key.getDecimal(at, field.precision, field.scale)
                .toJavaBigDecimal().toPlainString();
        }
        return key.getBinary(at);
    }

    /** The folder of a tuple, for people alone: nothing is ever read from it. */
    String folder(UnsafeRow key) {
        StringBuilder out = new StringBuilder();
        for (int i = 0; i < fields.length; i++) {
            String text = key.isNullAt(i) ? "null" : shown(value(key, i), fields[i]);
            String part = encoded(fields[i].name) + "=" + encoded(text);
            out.append(i == 0 ? "" : "/").append(part.length() <= LONGEST_FOLDER ? part
                : part.substring(0, LONGEST_FOLDER) + "-" + digest(part));
        }
        return out.toString();
    }

    private static String shown(Object value, WriteOrder.Field field) {
        boolean date = field.type.equals("date") && field.transform.equals("identity");
        if (date || field.transform.equals("day")) {
            return LocalDate.ofEpochDay(((Number) value).longValue()).toString();
        }
        if (field.transform.equals("year")) {
            return four(1970L + ((Number) value).longValue());
        }
        if (field.transform.equals("month")) {
            long month = ((Number) value).longValue();
            return four(1970L + Math.floorDiv(month, 12L))
                + "-" + two(1L + Math.floorMod(month, 12L));
        }
        if (field.transform.equals("hour")) {
            long hour = ((Number) value).longValue();
            return LocalDate.ofEpochDay(Math.floorDiv(hour, 24L))
                + "-" + two(Math.floorMod(hour, 24L));
        }
        return value instanceof byte[] ? Base64.getEncoder().encodeToString((byte[]) value)
            : String.valueOf(value);
    }

    private static String two(long value) {
        return value < 10 ? "0" + value : Long.toString(value);
    }

    private static String four(long value) {
        String text = Long.toString(Math.abs(value));
        return (value < 0 ? "-" : "") + "0000".substring(Math.min(4, text.length())) + text;
    }

    private static String encoded(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8)
            .replace("*", "%2A")
            .replace("%7E", "~");
    }

    private static String digest(String part) {
        try {
            byte[] hash = MessageDigest.getInstance("SHA-256")
                .digest(part.getBytes(StandardCharsets.UTF_8));
            StringBuilder out = new StringBuilder();
            for (int i = 0; i < 8; i++) {
                out.append(Character.forDigit((hash[i] >> 4) & 15, 16))
                    .append(Character.forDigit(hash[i] & 15, 16));
            }
            return out.toString();
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }
}
