package lakehouse.spark;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.connector.catalog.procedures.BoundProcedure;
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** A procedure of the namespace `system`, as Python describes and does it (`procedures.py`). */
final class LakeProcedure implements UnboundProcedure, BoundProcedure {
    private final Answerer lake;
    private final Map told;

    LakeProcedure(Answerer lake, Map told) {
        this.lake = lake;
        this.told = told;
    }

    public String name() {
        return (String) told.get("name");
    }

    public String description() {
        return (String) told.get("description");
    }

    public BoundProcedure bind(StructType given) {
        return this;
    }

    public boolean isDeterministic() {
        return false;
    }

    public ProcedureParameter[] parameters() {
        List given = (List) told.get("parameters");
        ProcedureParameter[] out = new ProcedureParameter[given.size()];
        for (int i = 0; i < out.length; i++) {
            Map one = (Map) given.get(i);
            ProcedureParameter.Builder made = ProcedureParameter.in(
                (String) one.get("name"), DataType.fromDDL((String) one.get("type")));
            out[i] = (Boolean.TRUE.equals(one.get("required")) ? made : made.defaultValue("NULL"))
                .build();
        }
        return out;
    }

    public Iterator call(InternalRow input) {
        ProcedureParameter[] parameters = parameters();
        HashMap arguments = new HashMap();
        for (int i = 0; i < parameters.length; i++) {
            DataType type = parameters[i].dataType();
            arguments.put(
                parameters[i].name(), input.isNullAt(i) ? null : plain(input.get(i, type), type));
        }
        HashMap asked = new HashMap();
        asked.put("name", name());
        asked.put("arguments", arguments);
        Map answer = lake.map("call", asked);
        return Collections.singletonList(
            new Result((StructType) StructType.fromDDL((String) told.get("returns")),
                (List) answer.get("rows"))).iterator();
    }

    /** A value for JSON: times in microseconds. */
    private static Object plain(Object value, DataType type) {
        if (type instanceof ArrayType) {
            DataType inside = ((ArrayType) type).elementType();
            ArrayData array = (ArrayData) value;
            ArrayList out = new ArrayList();
            for (int i = 0; i < array.numElements(); i++) {
                out.add(array.isNullAt(i) ? null : plain(array.get(i, inside), inside));
            }
            return out;
        }
        if (type instanceof MapType) {
            List keys = (List) plain(((MapData) value).keyArray(),
                new ArrayType(((MapType) type).keyType(), false));
            List values = (List) plain(((MapData) value).valueArray(),
                new ArrayType(((MapType) type).valueType(), true));
            HashMap out = new HashMap();
            for (int i = 0; i < keys.size(); i++) {
                out.put(keys.get(i), values.get(i));
            }
            return out;
        }
        return value instanceof UTF8String ? value.toString() : value;
    }

    /** The rows that a procedure gives. */
    static final class Result implements LocalScan {
        private final StructType schema;
        private final List told;

        Result(StructType schema, List told) {
            this.schema = schema;
            this.told = told;
        }

        public StructType readSchema() {
            return schema;
        }

        public InternalRow[] rows() {
            InternalRow[] out = new InternalRow[told.size()];
            StructField[] fields = schema.fields();
            for (int i = 0; i < out.length; i++) {
                List one = (List) told.get(i);
                Object[] values = new Object[fields.length];
                for (int j = 0; j < values.length; j++) {
                    values[j] = value(one.get(j), fields[j].dataType());
                }
                out[i] = new GenericInternalRow(values);
            }
            return out;
        }

        private static Object value(Object given, DataType type) {
            if (given == null || type.equals(DataTypes.BooleanType)) {
                return given;
            }
            if (type instanceof StringType) {
                return UTF8String.fromString((String) given);
            }
            if (type.equals(DataTypes.IntegerType)) {
                return Integer.valueOf(((Number) given).intValue());
            }
            return type.equals(DataTypes.DoubleType)
                ? (Object) Double.valueOf(((Number) given).doubleValue())
                : (Object) Long.valueOf(((Number) given).longValue());
        }
    }
}
