package lakehouse.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.GeneralScalarExpression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;

/**
 * Spark's connector predicates, for Python to say whether Iceberg has exactly the same condition.
 */
final class PredicateJson {
    private PredicateJson() {
    }

    static String of(Predicate[] predicates) {
        ArrayList out = new ArrayList();
        for (int i = 0; i < predicates.length; i++) {
            out.add(node(predicates[i]));
        }
        return Answerer.json(out);
    }

    private static Map node(Expression expression) {
        HashMap out = new HashMap();
        if (expression instanceof NamedReference) {
            out.put("column", ((NamedReference) expression).fieldNames());
        } else if (expression instanceof Literal && !(expression instanceof Predicate)) {
            // "always true" is a predicate and a literal
            Literal literal = (Literal) expression;
            out.put("type", literal.dataType().catalogString());
            out.put("value", FilterJson.value(literal.value()));
        } else if (expression instanceof GeneralScalarExpression) {
            out.put("op", ((GeneralScalarExpression) expression).name());
            ArrayList children = new ArrayList();
            Expression[] given = expression.children();
            for (int i = 0; i < given.length; i++) {
                children.add(node(given[i]));
            }
            out.put("args", children);
        } else {
            out.put("op", expression.getClass().getSimpleName());
        }
        return out;
    }
}
