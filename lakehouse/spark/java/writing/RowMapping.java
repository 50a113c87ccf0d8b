package lakehouse.spark;

import java.io.Serializable;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import org.apache.spark.sql.catalyst.analysis.TableOutputResolver$;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection$;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.types.DataTypeUtils$;
import org.apache.spark.sql.internal.SQLConf$;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;
import scala.collection.immutable.Seq;

/**
 * Rows of any columns as rows of a table that accepts any: by name, with Spark's own rules for
 * types, defaults and errors, which Spark leaves to such a table.
 */
final class RowMapping implements Serializable {
    private final Seq columns;
    private final Seq given;

    private RowMapping(Seq columns, Seq given) {
        this.columns = columns;
        this.given = given;
    }

    /** Raises Spark's errors for what does not fit; null where rows are as the table has them. */
    static RowMapping of(String table, StructType given, StructType wanted) {
        Seq attributes = DataTypeUtils$.MODULE$.toAttributes(given);
        LogicalPlan query = LocalRelation$.MODULE$.apply(attributes);
        LogicalPlan mapped =
            resolved(table, DataTypeUtils$.MODULE$.toAttributes(wanted), query);
        return mapped instanceof Project
            ? new RowMapping(((Project) mapped).projectList(), attributes) : null;
    }

    UnsafeProjection projection() {
        return UnsafeProjection$.MODULE$.create(columns, given);
    }

    /** How columns that are left out are filled is said otherwise in each version of Spark. */
    private static LogicalPlan resolved(String table, Seq expected, LogicalPlan query) {
        Object resolver = TableOutputResolver$.MODULE$;
        Method[] methods = resolver.getClass().getMethods();
        for (int i = 0; i < methods.length; i++) {
            if (!methods[i].getName().equals("resolveOutputColumns")) {
                continue;
            }
            try {
                Object filled = methods[i].getParameterTypes()[5] == Boolean.TYPE
                    ? (Object) Boolean.TRUE : fill(resolver.getClass().getName());
                return (LogicalPlan) methods[i].invoke(
                    resolver,
                    new Object[] {
                        table, expected, query, Boolean.TRUE, SQLConf$.MODULE$.get(), filled});
            } catch (InvocationTargetException error) {
                Platform.throwException(error.getCause());
            } catch (ReflectiveOperationException error) {
                throw new IllegalStateException(error);
            }
        }
        throw new IllegalStateException("this version of Spark is not known");
    }

    private static Object fill(String resolver) throws ReflectiveOperationException {
        Class modes = Class.forName(resolver + "DefaultValueFillMode$");
        return ((scala.Enumeration) modes.getField("MODULE$").get(null)).withName("FILL");
    }
}
