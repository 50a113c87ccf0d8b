package lakehouse.spark;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.TimeZoneAwareExpression;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Catalyst expressions as JSON: class name, children, and what else the translation in Python needs
 * to be exact.
 */
final class FilterJson {
    private static final String FIELD_ID = "parquet.field.id";
    private static final int MAX_DEPTH = 200;

    private FilterJson() {
    }

    static String of(Collection filters) {
        ArrayList nodes = new ArrayList();
        for (Object filter : filters) {
            nodes.add(node((Expression) filter, 0));
        }
        return Answerer.json(nodes);
    }

    private static Map node(Expression expression, int depth) {
        HashMap out = new HashMap();
        out.put("op", depth > MAX_DEPTH ? "TooDeep" : expression.getClass().getSimpleName());
        if (depth > MAX_DEPTH) {
            return out;
        }
        if (expression instanceof Literal) {
            Literal literal = (Literal) expression;
            out.put("type", literal.dataType().catalogString());
            out.put("value", value(literal.value()));
            return out;
        }
        if (expression instanceof AttributeReference) {
            AttributeReference attribute = (AttributeReference) expression;
            out.put("id", id(attribute.metadata()));
            out.put("type", attribute.dataType().catalogString());
            return out;
        }
        ArrayList children = new ArrayList();
        for (Object child : CollectionConverters.asJava(expression.children())) {
            children.add(node((Expression) child, depth + 1));
        }
        out.put("args", children);
        details(expression, out);
        return out;
    }

    private static void details(Expression expression, Map out) {
        if (expression instanceof GetStructField) {
            GetStructField get = (GetStructField) expression;
            StructField[] fields = ((StructType) get.child().dataType()).fields();
            out.put("id", id(fields[get.ordinal()].metadata()));
            out.put("type", get.dataType().catalogString());
        } else if (expression instanceof Cast) {
            Cast cast = (Cast) expression;
            out.put("from", cast.child().dataType().catalogString());
            out.put("to", cast.dataType().catalogString());
            out.put("zone", cast.timeZoneId().isDefined() ? cast.timeZoneId().get() : null);
        } else if (expression instanceof TimeZoneAwareExpression) {
            TimeZoneAwareExpression aware = (TimeZoneAwareExpression) expression;
            out.put("zone", aware.timeZoneId().isDefined() ? aware.timeZoneId().get() : null);
        } else if (expression instanceof InSet) {
            InSet set = (InSet) expression;
            ArrayList values = new ArrayList();
            for (Object item : CollectionConverters.asJava(set.hset())) {
                values.add(value(item));
            }
            out.put("type", set.child().dataType().catalogString());
            out.put("values", values);
        }
    }

    private static Object id(Metadata metadata) {
        return metadata.contains(FIELD_ID) ? Long.valueOf(metadata.getLong(FIELD_ID)) : null;
    }

    /**
     * Text for what is understood, null for null, a list for anything else, which prunes nothing.
     */
    static Object value(Object value) {
        if (value == null) {
            return null;
        }
        if (value instanceof UTF8String) {
            String text = value.toString();
            return UTF8String.fromString(text).equals(value) ? (Object) text : new ArrayList();
        }
        if (value instanceof Decimal) {
            return ((Decimal) value).toJavaBigDecimal().toPlainString();
        }
        if (value instanceof byte[]) {
            return HexFormat.of().formatHex((byte[]) value);
        }
        if (value instanceof Float) {
            return Double.toString(((Float) value).doubleValue());
        }
        if (value instanceof Number || value instanceof Boolean) {
            return value.toString();
        }
        return new ArrayList();
    }
}
