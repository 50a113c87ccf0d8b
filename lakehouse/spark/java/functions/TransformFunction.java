package lakehouse.spark;

import org.apache.spark.sql.connector.catalog.functions.BoundFunction;
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;

/** Iceberg's transforms as functions of a catalog: `lake.system.bucket(16, id)`. */
final class TransformFunction implements UnboundFunction {
    static final String[] NAMES = {
        "bucket", "days", "hours", "iceberg_version", "months", "truncate", "years"};
    private final String name;

    TransformFunction(String name) {
        this.name = name;
    }

    public String name() {
        return name;
    }

    public String description() {
        if (name.equals("bucket")) {
            return "bucket(buckets, value): the bucket that Iceberg puts the value into";
        }
        if (name.equals("truncate")) {
            return "truncate(width, value): the value cut as Iceberg cuts it";
        }
        return name.equals("iceberg_version") ? "iceberg_version(): what answers here"
            : name + "(value): " + name + " since 1970 in UTC";
    }

    public BoundFunction bind(StructType input) {
        int expected = name.equals("iceberg_version") ? 0
            : name.equals("bucket") || name.equals("truncate") ? 2 : 1;
        if (input.length() != expected) {
            throw new UnsupportedOperationException(description() + "; given are " + input.length()
                + " arguments");
        }
        if (expected == 0) {
            return new VersionFunction();
        }
        DataType type = value(input.fields()[expected - 1].dataType());
        if (expected == 2) {
            DataType number = input.fields()[0].dataType();
            if (!(number instanceof IntegerType || number instanceof ShortType
                    || number instanceof ByteType)) {
                throw new UnsupportedOperationException(
                    description() + "; the number is a " + number.simpleString());
            }
        }
        BoundFunction bound = bound(type);
        if (bound == null) {
            throw new UnsupportedOperationException(
                "Iceberg has no " + name + " of "
                    + input.fields()[expected - 1].dataType().simpleString());
        }
        return bound;
    }

    /** The type that a value is looked at in. */
    private static DataType value(DataType type) {
        if (type instanceof ByteType || type instanceof ShortType) {
            return DataTypes.IntegerType;
        }
        return type instanceof StringType ? DataTypes.StringType : type;
    }

    private BoundFunction bound(DataType type) {
        boolean instant = type instanceof TimestampType || type instanceof TimestampNTZType;
        boolean date = type instanceof DateType;
        boolean whole = type instanceof IntegerType || type instanceof LongType;
        boolean others = type instanceof StringType || type instanceof BinaryType
            || type instanceof DecimalType;
        if (name.equals("bucket")) {
            return instant || date || whole || others ? new BucketFunction(type) : null;
        }
        if (name.equals("truncate")) {
            return whole || others ? new TruncateFunction(type) : null;
        }
        if (name.equals("hours")) {
            return instant ? new UnitFunctions.Hours(type) : null;
        }
        if (!instant && !date) {
            return null;
        }
        if (name.equals("days")) {
            return date ? (BoundFunction) new UnitFunctions.DaysOfDate(type)
                : (BoundFunction) new UnitFunctions.Days(type);
        }
        if (name.equals("months")) {
            return date ? (BoundFunction) new UnitFunctions.MonthsOfDate(type)
                : (BoundFunction) new UnitFunctions.Months(type);
        }
        return date ? (BoundFunction) new UnitFunctions.YearsOfDate(type)
            : (BoundFunction) new UnitFunctions.Years(type);
    }
}
