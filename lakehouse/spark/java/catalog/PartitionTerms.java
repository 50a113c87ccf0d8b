package lakehouse.spark;

import java.util.Map;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.Transform;

/** Partition terms as Spark's transforms. */
final class PartitionTerms {
    private PartitionTerms() {
    }

    /** Of `{"transform": "bucket", "column": "a.b", "width": 16}`. */
    static Transform transform(Map told) {
        String name = (String) told.get("transform");
        String column = (String) told.get("column");
        if (name.equals("identity")) {
            return Expressions.identity(column);
        }
        if (name.equals("years")) {
            return Expressions.years(column);
        }
        if (name.equals("months")) {
            return Expressions.months(column);
        }
        if (name.equals("days")) {
            return Expressions.days(column);
        }
        if (name.equals("hours")) {
            return Expressions.hours(column);
        }
        if (name.equals("bucket")) {
            return Expressions.bucket(
                ((Number) told.get("width")).intValue(), new String[] {column});
        }
        if (told.get("width") == null) {
            return Expressions.apply(
                name,
                new org.apache.spark.sql.connector.expressions.Expression[] {
                    Expressions.column(column)});
        }
        return Expressions.apply(name, new org.apache.spark.sql.connector.expressions.Expression[] {
            Expressions.literal(Integer.valueOf(((Number) told.get("width")).intValue())),
            Expressions.column(column)});
    }
}
