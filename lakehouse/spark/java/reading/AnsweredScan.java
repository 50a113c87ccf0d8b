package lakehouse.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.Count;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.aggregate.Max;
import org.apache.spark.sql.connector.expressions.aggregate.Min;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** Aggregates over all rows of a table, or of whole files, that metadata knows: none is read. */
final class AnsweredScan implements LocalScan {
    /** Iceberg's setting. */
    private static final String SETTING = "spark.sql.iceberg.aggregate-push-down.enabled";
    private final StructType schema;
    private final InternalRow row;

    private AnsweredScan(StructType schema, InternalRow row) {
        this.schema = schema;
        this.row = row;
    }

    /** Null where rows have to be read. */
    static AnsweredScan of(LakehouseTable table, Aggregation aggregation, String filters) {
        AggregateFunc[] functions = aggregation.aggregateExpressions();
        boolean wanted = Boolean.parseBoolean(
            SparkSession.active().sessionState().conf().getConfString(SETTING, "true"));
        if (!wanted || functions.length == 0 || aggregation.groupByExpressions().length > 0) {
            return null;
        }
        ArrayList asked = new ArrayList();
        StructType schema = new StructType();
        for (int i = 0; i < functions.length; i++) {
            String name = name(functions[i]);
            StructField column = column(table, functions[i]);
            if (name == null || (column == null && !name.equals("rows"))) {
                return null;
            }
            asked.add(new String[] {name, column == null ? null : column.name()});
            boolean counts = name.equals("rows") || name.equals("count");
            schema = schema.add(functions[i].toString(),
                counts ? DataTypes.LongType : column.dataType(), !counts);
        }
        HashMap question = new HashMap();
        question.put("asked", asked);
        question.put("filters", filters);
        List told = table.answerer.list("aggregates", question);
        return told == null ? null : new AnsweredScan(schema, row(schema, told));
    }

    private static InternalRow row(StructType schema, List told) {
        Object[] values = new Object[told.size()];
        for (int i = 0; i < values.length; i++) {
            DataType type = schema.fields()[i].dataType();
            values[i] = PartitionValues.value(type, told.get(i));
        }
        return new GenericInternalRow(values);
    }

    private static String name(AggregateFunc function) {
        if (function instanceof CountStar) {
            return "rows";
        }
        if (function instanceof Count) {
            return ((Count) function).isDistinct() ? null : "count";
        }
        return function instanceof Min ? "min" : function instanceof Max ? "max" : null;
    }

    /** The column of the table that is aggregated; null for none, a nested one or an expression. */
    private static StructField column(LakehouseTable table, AggregateFunc function) {
        Expression[] inputs = function.children();
        if (inputs.length != 1 || !(inputs[0] instanceof NamedReference)) {
            return null;
        }
        String[] path = ((NamedReference) inputs[0]).fieldNames();
        boolean known = path.length == 1
            && Arrays.asList(table.schema().fieldNames()).contains(path[0]);
        return known ? table.schema().apply(path[0]) : null;
    }

    public StructType readSchema() {
        return schema;
    }

    public String description() {
        return "lakehouse [answered by metadata: " + String.join(", ", schema.fieldNames()) + "]";
    }

    public InternalRow[] rows() {
        return new InternalRow[] {row};
    }
}
