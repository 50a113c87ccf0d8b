package lakehouse.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.execution.datasources.DataSourceStrategy$;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Strategy$;
import org.apache.spark.sql.internal.connector.SupportsPushDownCatalystFilters;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Takes what a query asks of a table. Filters choose files (all of them, as Catalyst has them, go
 * to the planner) and row groups (those that Spark's Parquet reader knows); Spark applies them to
 * rows itself, unless they choose whole files.
 */
final class LakehouseScanBuilder
        implements SupportsPushDownAggregates, SupportsPushDownRequiredColumns,
        SupportsPushDownCatalystFilters {
    /** Days from 1582-10-17 to 1970: the first of the calendar, whatever the zone. */
    private static final long FIRST_DAY = -141425L;
    private static final long DAY_US = 86400000000L;
    private final LakehouseTable table;
    private final RowLevelChange change;
    private StructType required;
    private String filters = "[]";
    private boolean whole = true;
    private String description = "";
    private AnsweredScan answered;
    private LakehouseTable streamed;
    private Map options;
    private final ArrayList rowGroupFilters = new ArrayList();

    /** `change` is what the rows are read for, null for a query. */
    LakehouseScanBuilder(LakehouseTable table, RowLevelChange change) {
        this.table = table;
        this.change = change;
        this.required = table.schema();
    }

    /** What a scan is a stream of, if Spark wants one. */
    LakehouseScanBuilder orStream(LakehouseTable asked, Map given) {
        streamed = asked;
        options = given;
        return this;
    }

    public void pruneColumns(StructType asked) {
        required = asked;
    }

    public Seq pushFilters(Seq asked) {
        List found = CollectionConverters.asJava(asked);
        filters = FilterJson.of(found);
        Set unsafe = table.names("misleading");
        for (Object one : found) {
            description += (description.isEmpty() ? "" : " AND ") + ((Expression) one).sql();
            Option translated = DataSourceStrategy$.MODULE$.translateFilter((Expression) one, true);
            if (translated.isDefined() && safe((Filter) translated.get(), unsafe)
                    && !namesOldTimes((Expression) one)) {
                rowGroupFilters.add(translated.get());
            }
        }
        whole = found.isEmpty() || change == null && table.is("knows_aggregates") && isWhole(found);
        if (!whole) {
            return asked;
        }
        // a filter of columns that nobody reads any more would find them null
        rowGroupFilters.clear();
        return Scala.seq(new Object[0]);
    }

    /**
     * Whether of the files that are read every row meets the filters, which are then no more to be
     * asked of rows. Nobody looks for that unless they are about the columns of partitions.
     */
    private boolean isWhole(List asked) {
        Set partitioned = table.partitionColumns();
        Predicate[] predicates = new Predicate[asked.size()];
        for (int i = 0; i < predicates.length; i++) {
            Expression one = (Expression) asked.get(i);
            for (Object name : CollectionConverters.asJava(one.references().toSeq())) {
                String column = LakehouseTable.quoted(((NamedExpression) name).name());
                if (!partitioned.contains(column)) {
                    return false;
                }
            }
            Option translated = DataSourceV2Strategy$.MODULE$.translateFilterV2(one);
            if (translated.isEmpty()) {
                return false;
            }
            predicates[i] = (Predicate) translated.get();
        }
        HashMap question = new HashMap();
        question.put("filters", filters);
        question.put("predicates", PredicateJson.of(predicates));
        return table.answerer.yes("whole_files", question);
    }

    public Predicate[] pushedFilters() {
        return new Predicate[0];
    }

    public boolean supportCompletePushDown(Aggregation aggregation) {
        answered = change == null && whole && table.is("knows_aggregates")
            ? AnsweredScan.of(table, aggregation, filters) : null;
        return answered != null;
    }

    /** Spark asks for what `supportCompletePushDown` has told it that it may. */
    public boolean pushAggregation(Aggregation aggregation) {
        return answered != null;
    }

    public Scan build() {
        if (answered != null) {
            return answered;
        }
        if (change != null) {
            RowLevelScan scan = new RowLevelScan(
                table, required, filters, description, rowGroupFilters, change.answerer);
            return change.scanned(isForWorkers(scan) ? new WorkerRowLevelScan(scan) : scan);
        }
        LakehouseScan scan = ofQuery();
        scan.streamed = streamed;
        scan.options = options;
        return isForWorkers(scan)
            ? (Scan) new WorkerScan(scan, OutputColumns.whole(required, table)) : scan;
    }

    private LakehouseScan ofQuery() {
        if (GroupedScan.isAskedFor(table)) {
            return new GroupedScan(table, required, filters, description, rowGroupFilters);
        }
        return TouchedFilesScan.isAskedFor(required)
            ? new TouchedFilesScan(table, required, filters, description, rowGroupFilters)
            : new QueryScan(table, required, filters, description, rowGroupFilters);
    }

    /** Whether Spark cannot read the files itself. */
    private boolean isForWorkers(LakehouseScan scan) {
        return table.is("by_workers")
            || !Collections.disjoint(Arrays.asList(required.fieldNames()), table.names("for_workers"))
            || table.is("may_be_for_workers") && scan.plan().forWorkers;
    }

    /**
     * Whether a day or an instant from before the Gregorian calendar is named: on their way to the
     * Parquet reader those of October 1582 become others, and it would skip rows.
     */
    private static boolean namesOldTimes(Expression expression) {
        if (expression instanceof Literal) {
            Object value = ((Literal) expression).value();
            DataType type = ((Literal) expression).dataType();
            return value != null
                && (type.equals(DataTypes.DateType) && ((Integer) value).intValue() < FIRST_DAY
                || type.equals(DataTypes.TimestampType)
                && ((Long) value).longValue() < FIRST_DAY * DAY_US);
        }
        if (expression instanceof InSet) {
            DataType type = ((InSet) expression).child().dataType();
            return type.equals(DataTypes.DateType) || type.equals(DataTypes.TimestampType);
        }
        for (Object child : CollectionConverters.asJava(expression.children())) {
            if (namesOldTimes((Expression) child)) {
                return true;
            }
        }
        return false;
    }

    /** Whether no column is named that may be another one in some file. */
    private static boolean safe(Filter filter, Set unsafe) {
        String[][] paths = filter.v2references();
        for (int i = 0; i < paths.length; i++) {
            if (unsafe.contains(paths[i][0])) {
                return false;
            }
        }
        return true;
    }
}
