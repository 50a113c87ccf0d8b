package judge;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.iceberg.Schema;
import org.apache.iceberg.expressions.Expression;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.types.Type;

/** Filters as JSON: {op, column, value or values}, {op: and|or, left, right}, {op: not, child}. */
final class Filters {
  private Filters() {}

  static Expression parse(JsonNode node, Schema schema) {
    if (node == null || node.isNull()) {
      return Expressions.alwaysTrue();
    }
    String op = node.get("op").textValue();
    switch (op) {
      case "and":
        return Expressions.and(parse(node.get("left"), schema), parse(node.get("right"), schema));
      case "or":
        return Expressions.or(parse(node.get("left"), schema), parse(node.get("right"), schema));
      case "not":
        return Expressions.not(parse(node.get("child"), schema));
      default:
        return leaf(Expression.Operation.fromString(op.replace('-', '_')), node, schema);
    }
  }

  private static Expression leaf(Expression.Operation op, JsonNode node, Schema schema) {
    String column = node.get("column").textValue();
    Type type = schema.findType(column);
    if (node.has("values")) {
      List<Object> values = new ArrayList<>();
      node.get("values").forEach(one -> values.add(Values.internal(one, type)));
      return type.typeId() == Type.TypeID.TIMESTAMP_NANO
          ? nanoseconds(op, column, values)
          : Expressions.predicate(op, column, values);
    }
    if (!node.has("value")) {
      return Expressions.predicate(op, column);
    }
    Object value = Values.internal(node.get("value"), type);
    if (type.typeId() == Type.TypeID.TIMESTAMP_NANO) {
      return Expressions.predicate(op, column, Expressions.nanos((Long) value));
    }
    return Expressions.predicate(op, column, value);
  }

  /** One by one: in a set a number would be taken for microseconds. */
  private static Expression nanoseconds(
      Expression.Operation op, String column, List<Object> values) {
    Expression in = Expressions.alwaysFalse();
    for (Object value : values) {
      Expression one =
          Expressions.predicate(
              Expression.Operation.EQ, column, Expressions.nanos((Long) value));
      in = Expressions.or(in, one);
    }
    return op == Expression.Operation.IN ? in : Expressions.not(in);
  }
}
