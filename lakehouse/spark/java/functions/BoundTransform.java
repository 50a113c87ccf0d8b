package lakehouse.spark;

import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;

/**
 * A transform of values of one type. Spark calls its static method `invoke`, found by the types.
 */
abstract class BoundTransform implements ScalarFunction {
    private final String name;
    private final boolean numbered;
    final DataType type;
    private final DataType result;

    BoundTransform(String name, boolean numbered, DataType type, DataType result) {
        this.name = name;
        this.numbered = numbered;
        this.type = type;
        this.result = result;
    }

    public String name() {
        return name;
    }

    public DataType[] inputTypes() {
        return numbered ? new DataType[] {DataTypes.IntegerType, type} : new DataType[] {type};
    }

    public DataType resultType() {
        return result;
    }

    /**
     * Equal names are equal functions, also of two catalogs: Spark compares partitionings by them.
     */
    public String canonicalName() {
        String of = type.equals(DataTypes.LongType) ? "int" : type.simpleString();
        return "lakehouse." + name + "(" + (name.equals("bucket") ? of : type.simpleString()) + ")";
    }

    public boolean equals(Object other) {
        return other != null && other.getClass() == getClass()
            && ((BoundTransform) other).type.equals(type);
    }

    public int hashCode() {
        return canonicalName().hashCode();
    }
}
