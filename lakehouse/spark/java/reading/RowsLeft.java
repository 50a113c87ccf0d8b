package lakehouse.spark;

import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.sql.vectorized.ColumnVector;

/**
 * Moves the rows of a vector that are left to its front, in their order: what follows reads a
 * vector of Spark's, not one of ours that looks each value up. The next batch overwrites all of it.
 */
final class RowsLeft {
    private RowsLeft() {
    }

    /** False, and nothing was moved: nested values, booleans, and vectors of others. */
    static boolean moved(ColumnVector vector, int[] left) {
        if (!(vector instanceof WritableColumnVector)) {
            return false;
        }
        WritableColumnVector values = (WritableColumnVector) vector;
        if (values.isAllNull()) {
            return true;
        }
        if (values.hasDictionary()) {
            ints(values.getDictionaryIds(), left);
        } else if (!movedValues(values, vector.dataType(), left)) {
            return false;
        }
        if (values.hasNull()) {
            for (int i = first(left); i < left.length; i++) {
                if (values.isNullAt(left[i])) {
                    values.putNull(i);
                } else {
                    values.putNotNull(i);
                }
            }
        }
        return true;
    }

    private static boolean movedValues(WritableColumnVector values, DataType type, int[] left) {
        int precision = type instanceof DecimalType ? ((DecimalType) type).precision() : 0;
        if (type instanceof IntegerType || type instanceof DateType
                || precision > 0 && precision <= 9) {
            ints(values, left);
        } else if (type instanceof LongType || type instanceof TimestampType
                || type instanceof TimestampNTZType || precision > 0 && precision <= 18) {
            longs(values, left);
        } else if (type instanceof DoubleType) {
            doubles(values, left);
        } else if (type instanceof FloatType) {
            for (int i = first(left); i < left.length; i++) {
                values.putFloat(i, values.getFloat(left[i]));
            }
        } else if (type instanceof StringType || type instanceof BinaryType || precision > 18) {
            for (int i = first(left); i < left.length; i++) {
                values.putArray(i, values.getArrayOffset(left[i]), values.getArrayLength(left[i]));
            }
        } else {
            return false;
        }
        return true;
    }

    /** The first row that has another one before it to pass. */
    private static int first(int[] left) {
        int low = 0;
        int high = left.length;
        while (low < high) {
            int middle = (low + high) >>> 1;
            if (left[middle] == middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return low;
    }

    private static void ints(WritableColumnVector values, int[] left) {
        int first = first(left);
        int count = left.length - first;
        if (count > 0) {
            int[] all = values.getInts(first, left[left.length - 1] + 1 - first);
            for (int i = 0; i < count; i++) {
                all[i] = all[left[first + i] - first];
            }
            values.putInts(first, count, all, 0);
        }
    }

    private static void longs(WritableColumnVector values, int[] left) {
        int first = first(left);
        int count = left.length - first;
        if (count > 0) {
            long[] all = values.getLongs(first, left[left.length - 1] + 1 - first);
            for (int i = 0; i < count; i++) {
                all[i] = all[left[first + i] - first];
            }
            values.putLongs(first, count, all, 0);
        }
    }

    private static void doubles(WritableColumnVector values, int[] left) {
        int first = first(left);
        int count = left.length - first;
        if (count > 0) {
            double[] all = values.getDoubles(first, left[left.length - 1] + 1 - first);
            for (int i = 0; i < count; i++) {
                all[i] = all[left[first + i] - first];
            }
            values.putDoubles(first, count, all, 0);
        }
    }
}
