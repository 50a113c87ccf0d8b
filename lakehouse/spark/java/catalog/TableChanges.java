package lakehouse.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.ColumnDefaultValue;
import org.apache.spark.sql.connector.catalog.TableChange;

/** What ALTER TABLE asks for, one map a change. */
final class TableChanges {
    private TableChanges() {
    }

    static List told(TableChange[] changes) {
        ArrayList out = new ArrayList();
        for (int i = 0; i < changes.length; i++) {
            out.add(told(changes[i]));
        }
        return out;
    }

    private static Map told(TableChange change) {
        HashMap out = new HashMap();
        out.put("change", change.getClass().getSimpleName());
        if (change instanceof TableChange.ColumnChange) {
            out.put("column", ((TableChange.ColumnChange) change).fieldNames());
        }
        if (change instanceof TableChange.SetProperty) {
            out.put("property", ((TableChange.SetProperty) change).property());
            out.put("value", ((TableChange.SetProperty) change).value());
        } else if (change instanceof TableChange.RemoveProperty) {
            out.put("property", ((TableChange.RemoveProperty) change).property());
        } else if (change instanceof TableChange.AddColumn) {
            added((TableChange.AddColumn) change, out);
        } else if (change instanceof TableChange.RenameColumn) {
            out.put("to", ((TableChange.RenameColumn) change).newName());
        } else if (change instanceof TableChange.UpdateColumnType) {
            out.put("type", ((TableChange.UpdateColumnType) change).newDataType().json());
        } else if (change instanceof TableChange.UpdateColumnNullability) {
            out.put("nullable",
                Boolean.valueOf(((TableChange.UpdateColumnNullability) change).nullable()));
        } else if (change instanceof TableChange.UpdateColumnComment) {
            out.put("comment", ((TableChange.UpdateColumnComment) change).newComment());
        } else if (change instanceof TableChange.UpdateColumnPosition) {
            placed(((TableChange.UpdateColumnPosition) change).position(), out);
        } else if (change instanceof TableChange.UpdateColumnDefaultValue) {
            out.put("default", ((TableChange.UpdateColumnDefaultValue) change).newDefaultValue());
        } else if (change instanceof TableChange.DeleteColumn) {
            out.put("if_exists", ((TableChange.DeleteColumn) change).ifExists());
        } else if (change instanceof TableChange.ClusterBy) {
            out.put("columns", String.valueOf(change));
        }
        return out;
    }

    private static void added(TableChange.AddColumn change, Map out) {
        out.put("type", change.dataType().json());
        out.put("nullable", Boolean.valueOf(change.isNullable()));
        out.put("comment", change.comment());
        placed(change.position(), out);
        out.put("default", defaultOf(change.defaultValue()));
    }

    /**
     * The value of a column for rows that do not say it: its Spark type, and it as filters have it.
     */
    static Map defaultOf(ColumnDefaultValue given) {
        if (given == null) {
            return null;
        }
        HashMap out = new HashMap();
        out.put("type", given.getValue().dataType().catalogString());
        out.put("value", FilterJson.value(given.getValue().value()));
        return out;
    }

    private static void placed(TableChange.ColumnPosition position, Map out) {
        if (position instanceof TableChange.After) {
            out.put("after", ((TableChange.After) position).column());
        } else if (position instanceof TableChange.First) {
            out.put("first", Boolean.TRUE);
        }
    }
}
