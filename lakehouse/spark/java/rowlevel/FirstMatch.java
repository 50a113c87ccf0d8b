package lakehouse.spark;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.roaringbitmap.longlong.Roaring64Bitmap;

/**
 * first_match(target, source, row): false where both sides of a join are there and the task has
 * seen this number of the target's row so before.
 */
public final class FirstMatch implements ScalarFunction {
    private transient Roaring64Bitmap seen;

    FirstMatch() {
    }

    public String name() {
        return "first_match";
    }

    public DataType[] inputTypes() {
        return new DataType[] {
            DataTypes.BooleanType, DataTypes.BooleanType, DataTypes.LongType};
    }

    public DataType resultType() {
        return DataTypes.BooleanType;
    }

    public boolean isResultNullable() {
        return false;
    }

    public boolean isDeterministic() {
        return false;
    }

    public Object produceResult(InternalRow row) {
        if (!row.getBoolean(0) || !row.getBoolean(1)) {
            return Boolean.TRUE;
        }
        if (seen == null) {
            seen = new Roaring64Bitmap();
        }
        long number = row.getLong(2);
        boolean first = !seen.contains(number);
        if (first) {
            seen.addLong(number);
        }
        return Boolean.valueOf(first);
    }
}
