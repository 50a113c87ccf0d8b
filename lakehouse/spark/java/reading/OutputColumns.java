package lakehouse.spark;

import java.util.ArrayList;
import java.util.Set;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** Which columns have to be read from a file for those that a scan shows. */
final class OutputColumns {
    static final String FIELD_ID = "parquet.field.id";
    static final String ICEBERG_TYPE = "lakehouse.type";
    private final Set unsafe;
    private final ArrayList physical = new ArrayList();
    private final OutputColumn[] columns;
    private boolean plain = true;
    private boolean showsDeleted;

    OutputColumns(StructType required, LakehouseTable from, boolean deletes) {
        StructField[] asked = required.fields();
        StructType table = from.schema();
        unsafe = from.names("misleading");
        ArrayList own = new ArrayList();
        for (int i = 0; i < table.fields().length; i++) {
            own.add(table.fields()[i].name());
        }
        int positions = deletes || needsPosition(asked, own) ? -2 : -1;
        columns = new OutputColumn[asked.length];
        for (int i = 0; i < asked.length; i++) {
            int at = own.indexOf(asked[i].name());
            columns[i] = at >= 0 ? data(asked[i], table.fields()[at]) : beside(asked[i]);
        }
        if (positions == -2) {
            positions = add(new StructField(
                ParquetFileFormat.ROW_INDEX_TEMPORARY_COLUMN_NAME(), DataTypes.LongType, true,
                Metadata.empty()));
        }
        for (int i = 0; i < columns.length; i++) {
            columns[i] = new OutputColumn(
                columns[i].kind, columns[i].type, columns[i].ordinal, positions);
        }
    }

    StructType physical() {
        return new StructType((StructField[]) physical.toArray(new StructField[0]));
    }

    OutputColumn[] columns() {
        return columns;
    }

    boolean plain() {
        return plain;
    }

    boolean showsDeleted() {
        return showsDeleted;
    }

    /**
     * The asked columns with all their nested fields: what comes from elsewhere is not cut down.
     */
    static StructType whole(StructType asked, LakehouseTable table) {
        StructField[] fields = asked.fields();
        StructField[] made = new StructField[fields.length];
        for (int i = 0; i < fields.length; i++) {
            made[i] = fields[i];
            StructField[] own = table.schema().fields();
            for (int j = 0; j < own.length; j++) {
                made[i] = own[j].name().equals(fields[i].name()) ? own[j] : made[i];
            }
        }
        return new StructType(made);
    }

    private OutputColumn data(StructField asked, StructField whole) {
        if (whole.metadata().contains(ICEBERG_TYPE)) {
            plain = false;
            return new OutputColumn(OutputColumn.UUID, asked.dataType(), add(new StructField(
                physicalName(whole), DataTypes.BinaryType, asked.nullable(), whole.metadata())),
            -1);
        }
        return new OutputColumn(OutputColumn.DATA, asked.dataType(), add(new StructField(
            physicalName(whole), withIds(asked.dataType(), whole.dataType()), asked.nullable(),
            whole.metadata())), -1);
    }

    /**
     * The reader finds columns by id, and is led astray by a file where another one has the name.
     */
    private String physicalName(StructField field) {
        return unsafe.contains(field.name()) ? unlike(field) : field.name();
    }

    /** A name that no file has. */
    private static String unlike(StructField field) {
        return "_lakehouse_column_" + field.metadata().getLong(FIELD_ID);
    }

    private OutputColumn beside(StructField asked) {
        plain = false;
        String name = asked.name();
        showsDeleted = showsDeleted || name.equals("_deleted");
        int ordinal = -1;
        if (name.equals("_row_id") || name.equals("_last_updated_sequence_number")) {
            Metadata id = new MetadataBuilder()
                .putLong(FIELD_ID, name.equals("_row_id") ? 2147483540L : 2147483539L).build();
            ordinal = add(new StructField(name, DataTypes.LongType, true, id));
        }
        return new OutputColumn(name, asked.dataType(), ordinal, -1);
    }

    private static boolean needsPosition(StructField[] asked, ArrayList own) {
        for (int i = 0; i < asked.length; i++) {
            String name = asked[i].name();
            if (!own.contains(name) && (name.equals("_pos") || name.equals("_row_id")
                    || name.equals("_deleted") || name.equals("_metadata"))) {
                return true;
            }
        }
        return false;
    }

    private int add(StructField field) {
        physical.add(field);
        return physical.size() - 1;
    }

    /**
     * The pruned type with the ids that fields of the same name have in the whole one: Spark makes
     * the struct at the top of a pruned path anew, and the reader would look for it by name.
     */
    static DataType withIds(DataType pruned, DataType whole) {
        if (pruned instanceof StructType && whole instanceof StructType) {
            StructField[] fields = ((StructType) pruned).fields();
            StructField[] known = ((StructType) whole).fields();
            StructField[] made = new StructField[fields.length];
            for (int i = 0; i < fields.length; i++) {
                made[i] = fields[i];
                for (int j = 0; j < known.length; j++) {
                    if (known[j].name().equals(fields[i].name())) {
                        DataType type = withIds(fields[i].dataType(), known[j].dataType());
                        made[i] = new StructField(
                            unlike(known[j]), type, fields[i].nullable(), known[j].metadata());
                    }
                }
            }
            return new StructType(made);
        }
        if (pruned instanceof ArrayType && whole instanceof ArrayType) {
            ArrayType array = (ArrayType) pruned;
            return new ArrayType(
                withIds(array.elementType(), ((ArrayType) whole).elementType()),
                array.containsNull());
        }
        if (pruned instanceof MapType && whole instanceof MapType) {
            MapType map = (MapType) pruned;
            DataType key = withIds(map.keyType(), ((MapType) whole).keyType());
            DataType value = withIds(map.valueType(), ((MapType) whole).valueType());
            return new MapType(key, value, map.valueContainsNull());
        }
        return pruned;
    }
}
