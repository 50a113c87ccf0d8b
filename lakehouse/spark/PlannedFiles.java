package lakehouse.spark;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.lang.reflect.Constructor;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogColumnStat;
import org.apache.spark.sql.catalyst.catalog.CatalogStatistics;
import org.apache.spark.sql.catalyst.catalog.CatalogStorageFormat;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.TimeZoneAwareExpression;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * The Java half of a planned relation, compiled by Spark's own Janino when a session first reads a table.
 *
 * Spark asks for files here; the question (the query's filters as JSON) and the answer (file locations and sizes as one
 * string) each cross to Python once, whatever the number of filters and files. Everything else that Spark asks of a file
 * index, equality above all, is answered without leaving the JVM. Janino knows no generics inference and no lambdas.
 */
public final class PlannedFiles {

    /** Readies a session: these settings, and the rule that prunes files while a query is optimized. One call, as each costs a trip. */
    public void ready(SparkSession session, Map settings) {
        for (Object entry : settings.entrySet()) {
            String key = (String) ((Map.Entry) entry).getKey();
            String value = (String) ((Map.Entry) entry).getValue();
            if (!value.equals(session.conf().get(key, ""))) {
                session.conf().set(key, value);
            }
        }
        PruneRule rule = new PruneRule();
        ArrayList rules = new ArrayList(CollectionConverters.asJava(session.experimental().extraOptimizations()));
        for (Object known : rules) {
            if (((Rule) known).ruleName().equals(rule.ruleName())) {
                return;
            }
        }
        rules.add(rule);
        session.experimental().extraOptimizations_$eq(seq(rules.toArray()));
    }

    /** What Python says of a relation. */
    public static final class Facts {
        public String name;
        public String root;
        public long bytes;
        public long rows;
        public HashMap distinct;
        public String schema;
        public HashMap options;
    }

    /** A frame over the files that `planner` answers with. */
    public Dataset relation(SparkSession session, Function planner, String json) throws Exception {
        Facts facts = (Facts) new ObjectMapper().readValue(json, Facts.class);
        StructType schema = (StructType) DataType.fromJson(facts.schema);
        FileIndex index = new LakehouseFileIndex(new Planner(planner, facts.name), facts, null, null);
        scala.collection.immutable.Map options =
            scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(facts.options));
        HadoopFsRelation relation = new HadoopFsRelation(
            index, new StructType(), schema, Option.empty(), new ParquetByFieldId(schema), options, session);
        Dataset frame = session.baseRelationToDataFrame(relation);
        if (facts.rows < 0L) {
            return frame;
        }
        LogicalRelation leaf = (LogicalRelation) frame.logicalPlan();
        return Dataset.ofRows(session, leaf.copy(
            relation, leaf.output(), Option.apply(Estimates.table(facts, schema, facts.bytes, facts.rows)), leaf.isStreaming(),
            leaf.stream()));
    }

    /** The location as `_metadata.file_path` spells it. */
    public String filePath(String location) {
        return new Path(location).toUri().toString();
    }

    /** The files that one question left over. */
    static final class Answer {
        final FileStatus[] files;
        final long bytes;
        final long rows;

        Answer(FileStatus[] files, long bytes, long rows) {
            this.files = files;
            this.bytes = bytes;
            this.rows = rows;
        }
    }

    /** Sizes, rows and distinct counts as Spark takes them: as those of a table of a catalog. */
    static final class Estimates {
        private static final int STATISTICS = 12;

        static CatalogTable table(Facts facts, StructType schema, long bytes, long rows) throws Exception {
            HashMap columns = new HashMap();
            for (Object entry : facts.distinct.entrySet()) {
                long distinct = Math.min(rows, ((Number) ((Map.Entry) entry).getValue()).longValue());
                // nobody counted nulls over all files, and Spark ignores a distinct count without them
                columns.put(((Map.Entry) entry).getKey(), new CatalogColumnStat(
                    Option.apply(number(distinct)), Option.empty(), Option.empty(), Option.apply(number(0L)), Option.empty(),
                    Option.empty(), Option.empty(), 2));
            }
            CatalogStatistics found = new CatalogStatistics(
                number(bytes), Option.apply(number(rows)),
                scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(columns)));
            Constructor constructor = CatalogTable.class.getConstructors()[0];
            Object[] given = new Object[constructor.getParameterCount()];
            given[0] = new TableIdentifier(facts.name);
            given[1] = CatalogTableType.EXTERNAL();
            given[2] = CatalogStorageFormat.empty();
            given[3] = schema;
            given[STATISTICS] = Option.apply(found);
            for (int i = 4; i < given.length; i++) {
                if (i != STATISTICS) {
                    given[i] = CatalogTable.class.getMethod("$lessinit$greater$default$" + (i + 1)).invoke(null);
                }
            }
            return (CatalogTable) constructor.newInstance(given);
        }

        private static scala.math.BigInt number(long value) {
            return scala.math.BigInt.apply(value);
        }
    }

    /** Asks Python, and remembers the last answers: one query asks the same again when its plan is copied. */
    static final class Planner {
        private static final int REMEMBERED = 4;
        private final Function python;
        private final String name;
        private final ArrayList questions = new ArrayList();
        private final ArrayList answers = new ArrayList();

        Planner(Function python, String name) {
            this.python = python;
            this.name = name;
        }

        synchronized Answer ask(String question) {
            int known = questions.indexOf(question);
            if (known >= 0) {
                return (Answer) answers.get(known);
            }
            Answer answer = parse((String) python.apply(question));
            if (questions.size() == REMEMBERED) {
                questions.remove(0);
                answers.remove(0);
            }
            questions.add(question);
            answers.add(answer);
            return answer;
        }

        /** "E" + message, or "F" + rows NUL prefix NUL (suffix NUL size NUL)*. */
        private Answer parse(String text) {
            if (text.charAt(0) != 'F') {
                throw new IllegalArgumentException("planning " + name + " failed: " + text.substring(1));
            }
            int head = text.indexOf('\0');
            long rows = Long.parseLong(text.substring(1, head));
            int at = text.indexOf('\0', head + 1);
            String prefix = text.substring(head + 1, at);
            ArrayList files = new ArrayList();
            long total = 0L;
            while (at + 1 < text.length()) {
                int path = text.indexOf('\0', at + 1);
                int size = text.indexOf('\0', path + 1);
                long bytes = Long.parseLong(text.substring(path + 1, size));
                files.add(new FileStatus(bytes, false, 1, 134217728L, 0L, new Path(prefix + text.substring(at + 1, path))));
                total += bytes;
                at = size;
            }
            return new Answer((FileStatus[]) files.toArray(new FileStatus[0]), total, rows);
        }
    }

    /** A file index over one snapshot. With an answer of its own it is bound to one query's filters. */
    public static final class LakehouseFileIndex implements FileIndex {
        final Planner planner;
        final Facts facts;
        final String question;
        final Answer answer;

        LakehouseFileIndex(Planner planner, Facts facts, String question, Answer answer) {
            this.planner = planner;
            this.facts = facts;
            this.question = question;
            this.answer = answer;
        }

        LakehouseFileIndex pruned(String filters) {
            return new LakehouseFileIndex(planner, facts, filters, planner.ask(filters));
        }

        public Seq rootPaths() {
            return seq(new Object[] {new Path(facts.root)});
        }

        public Seq listFiles(Seq partitionFilters, Seq dataFilters) {
            if (!SQLConf.get().parquetFieldIdReadEnabled()) {
                throw new IllegalArgumentException(
                    "reading " + facts.name + " needs spark.sql.parquet.fieldId.read.enabled=true in this session: columns are found by"
                    + " field id; lakehouse.spark.attach sets it");
            }
            Answer found = answer != null ? answer : planner.ask(Filters.json(CollectionConverters.asJava(dataFilters)));
            return seq(new Object[] {PartitionDirectory.apply(InternalRow.empty(), found.files)});
        }

        public String[] inputFiles() {
            FileStatus[] files = (answer != null ? answer : planner.ask("[]")).files;
            String[] paths = new String[files.length];
            for (int i = 0; i < files.length; i++) {
                paths[i] = files[i].getPath().toUri().toString();
            }
            return paths;
        }

        public void refresh() {
        }

        public long sizeInBytes() {
            return answer != null ? answer.bytes : facts.bytes;
        }

        public StructType partitionSchema() {
            return new StructType();
        }

        public boolean equals(Object other) {
            if (!(other instanceof LakehouseFileIndex)) {
                return false;
            }
            LakehouseFileIndex that = (LakehouseFileIndex) other;
            return planner == that.planner && (question == null ? that.question == null : question.equals(that.question));
        }

        public int hashCode() {
            return System.identityHashCode(planner) + (question == null ? 0 : question.hashCode());
        }

        public String toString() {
            return answer == null ? "lakehouse[" + facts.name + "]" : "lakehouse[" + facts.name + ", " + answer.files.length + " files]";
        }
    }

    /**
     * Spark's Parquet. Nested column pruning makes the struct at the top of a pruned path anew, without its field id; then the
     * reader would look for it by name, and show nulls for a struct that was renamed. Here every field gets its id back. The
     * reader is made by Spark's own object, because executors know no class of this file.
     */
    public static final class ParquetByFieldId extends ParquetFileFormat {
        private final ParquetFileFormat parquet = new ParquetFileFormat();
        private final StructType schema;

        ParquetByFieldId(StructType schema) {
            this.schema = schema;
        }

        public scala.Function1 buildReaderWithPartitionValues(
                org.apache.spark.sql.SparkSession session, StructType data, StructType partitions, StructType required, Seq filters,
                scala.collection.immutable.Map options, Configuration configuration) {
            StructType asked = (StructType) withIds(required, schema);
            return parquet.buildReaderWithPartitionValues(session, data, partitions, asked, filters, options, configuration);
        }

        /** The pruned type with the metadata that fields of the same name have in the whole one. */
        private static DataType withIds(DataType pruned, DataType whole) {
            if (pruned instanceof StructType && whole instanceof StructType) {
                StructField[] fields = ((StructType) pruned).fields();
                StructField[] known = ((StructType) whole).fields();
                StructField[] made = new StructField[fields.length];
                for (int i = 0; i < fields.length; i++) {
                    made[i] = fields[i];
                    for (int j = 0; j < known.length; j++) {
                        if (known[j].name().equals(fields[i].name())) {
                            DataType type = withIds(fields[i].dataType(), known[j].dataType());
                            made[i] = new StructField(fields[i].name(), type, fields[i].nullable(), known[j].metadata());
                        }
                    }
                }
                return new StructType(made);
            }
            if (pruned instanceof ArrayType && whole instanceof ArrayType) {
                ArrayType array = (ArrayType) pruned;
                return new ArrayType(withIds(array.elementType(), ((ArrayType) whole).elementType()), array.containsNull());
            }
            if (pruned instanceof MapType && whole instanceof MapType) {
                MapType map = (MapType) pruned;
                DataType key = withIds(map.keyType(), ((MapType) whole).keyType());
                return new MapType(key, withIds(map.valueType(), ((MapType) whole).valueType()), map.valueContainsNull());
            }
            return pruned;
        }
    }

    /** Plans a filtered relation while the query is optimized, so that joins see the size of what is left. */
    static final class PruneRule extends Rule {
        public org.apache.spark.sql.catalyst.trees.TreeNode apply(org.apache.spark.sql.catalyst.trees.TreeNode plan) {
            return ((LogicalPlan) plan).transformDown(new PruneFilter());
        }

        public String ruleName() {
            return "lakehouse.spark.PruneFiles";
        }
    }

    static final class PruneFilter extends AbstractPartialFunction {
        public boolean isDefinedAt(Object node) {
            return unpruned(node) != null;
        }

        public Object applyOrElse(Object node, scala.Function1 otherwise) {
            LogicalRelation leaf = unpruned(node);
            if (leaf == null) {
                return otherwise.apply(node);
            }
            Filter filter = (Filter) node;
            HadoopFsRelation relation = (HadoopFsRelation) leaf.relation();
            LakehouseFileIndex index = ((LakehouseFileIndex) relation.location()).pruned(Filters.json(Arrays.asList(new Object[] {filter.condition()})));
            HadoopFsRelation smaller = relation.copy(
                index, relation.partitionSchema(), relation.dataSchema(), relation.bucketSpec(), relation.fileFormat(),
                relation.options(), relation.sparkSession());
            return filter.copy(
                filter.condition(), leaf.copy(smaller, leaf.output(), described(leaf, index), leaf.isStreaming(), leaf.stream()));
        }

        /** The statistics of the files that are left. */
        private static Option described(LogicalRelation leaf, LakehouseFileIndex index) {
            if (leaf.catalogTable().isEmpty()) {
                return leaf.catalogTable();
            }
            try {
                StructType schema = ((CatalogTable) leaf.catalogTable().get()).schema();
                return Option.apply(Estimates.table(index.facts, schema, index.answer.bytes, index.answer.rows));
            } catch (Exception error) {
                throw new IllegalStateException("statistics of " + index.facts.name + ": " + error, error);
            }
        }

        private static LogicalRelation unpruned(Object node) {
            if (!(node instanceof Filter) || !(((Filter) node).child() instanceof LogicalRelation)) {
                return null;
            }
            LogicalRelation leaf = (LogicalRelation) ((Filter) node).child();
            if (!(leaf.relation() instanceof HadoopFsRelation)) {
                return null;
            }
            FileIndex location = ((HadoopFsRelation) leaf.relation()).location();
            return location instanceof LakehouseFileIndex && ((LakehouseFileIndex) location).question == null ? leaf : null;
        }
    }

    /** Catalyst expressions as JSON: class name, children, and what else the translation in Python needs to be exact. */
    static final class Filters {
        private static final ObjectMapper MAPPER = new ObjectMapper();
        private static final String FIELD_ID = "parquet.field.id";
        private static final int MAX_DEPTH = 200;

        static String json(java.util.Collection filters) {
            ArrayList nodes = new ArrayList();
            for (Object filter : filters) {
                nodes.add(node((Expression) filter, 0));
            }
            try {
                return MAPPER.writeValueAsString(nodes);
            } catch (java.io.IOException error) {
                throw new IllegalStateException(error);
            }
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

        /** Text for what is understood, null for null, a list for anything else, which prunes nothing. */
        private static Object value(Object value) {
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
                return java.util.HexFormat.of().formatHex((byte[]) value);
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

    private static Seq seq(Object[] items) {
        return CollectionConverters.asScala(Arrays.asList(items)).toSeq();
    }
}
