package lakehouse.spark;

import java.math.BigDecimal;
import java.util.Base64;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** Partition values that Python told, by name of the partition field, as Spark holds them. */
final class PartitionValues {
    private PartitionValues() {
    }

    /** Null for a partition of none of these fields. */
    static InternalRow row(StructType type, Map told) {
        StructField[] fields = type.fields();
        Object[] values = new Object[fields.length];
        for (int i = 0; i < fields.length; i++) {
            values[i] = value(
                fields[i].dataType(), told == null ? null : told.get(fields[i].name()));
        }
        return new GenericInternalRow(values);
    }

    /** Numbers are as Iceberg counts them; bytes are base64. */
    static Object value(DataType type, Object told) {
        if (told == null || type instanceof BooleanType) {
            return told;
        }
        if (type instanceof IntegerType || type instanceof DateType) {
            return Integer.valueOf(((Number) told).intValue());
        }
        if (type instanceof StringType) {
            return UTF8String.fromString((String) told);
        }
        if (type instanceof BinaryType) {
            return Base64.getDecoder().decode((String) told);
        }
        if (type instanceof DecimalType) {
            DecimalType decimal = (DecimalType) type;
            return Decimal.apply(
                new scala.math.BigDecimal(new BigDecimal((String) told)), decimal.precision(),
                decimal.scale());
        }
        if (type instanceof DoubleType) {
            return Double.valueOf(String.valueOf(told));
        }
        if (type instanceof FloatType) {
            return Float.valueOf(String.valueOf(told));
        }
        return Long.valueOf(((Number) told).longValue());
    }
}
