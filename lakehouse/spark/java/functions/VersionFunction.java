package lakehouse.spark;

import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;

/** iceberg_version(), which scripts ask to see whether the functions are there. */
public final class VersionFunction implements ScalarFunction {
    VersionFunction() {
    }

    public String name() {
        return "iceberg_version";
    }

    public DataType[] inputTypes() {
        return new DataType[0];
    }

    public DataType resultType() {
        return DataTypes.StringType;
    }

    public static UTF8String invoke() {
        return UTF8String.fromString("lakehouse");
    }
}
