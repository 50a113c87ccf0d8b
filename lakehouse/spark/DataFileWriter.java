package lakehouse.spark;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.Serializable;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.security.MessageDigest;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Ascending$;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NullsFirst$;
import org.apache.spark.sql.catalyst.expressions.RowOrdering;
import org.apache.spark.sql.catalyst.expressions.RuntimeReplaceable;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.RebalancePartitions;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.UnsafeExternalRowSorter;
import org.apache.spark.sql.execution.datasources.parquet.ParquetWriteSupport;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.collection.unsafe.sort.PrefixComparators;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction0;
import scala.runtime.AbstractPartialFunction;

/**
 * Writes the rows of a query as Parquet data files, in the tasks that make them, with Spark's own Parquet writer.
 *
 * Compiled by Spark's own Janino and shipped to executors, which Spark does with a JAR that is made for it. Each file is made
 * under its final name, synced when it is complete, and named to nobody before all of them are; a task that fails deletes its
 * own. Janino knows no generics inference and no lambdas.
 */
public final class DataFileWriter {

    /** How rows are written; what crosses to executors. */
    public static final class Order implements Serializable {
        public String folder;
        public String name;
        public String schemaJson;
        public String codec;
        public long targetBytes;
        public long bufferBytes;
        public int maxOpenFiles;
        /** Whether rows come key by key, in an order that must be kept. */
        public boolean grouped;
        public HashMap settings = new HashMap();
        /** Field ids of list elements, map keys and values, which Spark's schema has no place for; paths joined by NUL. */
        public HashMap ids = new HashMap();
        /** Names of the partition fields and how their values are shown; the fields of kind "void" have no key. */
        public String[] fieldNames = new String[0];
        public String[] fieldKinds = new String[0];
        /** Ordinals of columns that may hold no null though Spark thinks that they could, and what to fail with. */
        public int[] required = new int[0];
        public String[] requiredFailures = new String[0];
        /** Ordinals of float and double columns whose values are counted and bounded; which of them are doubles. */
        public int[] floating = new int[0];
        public boolean[] doubles = new boolean[0];
    }

    /** Brings rows of equal keys together, without a column more in the shuffle; large partitions are split. */
    public Dataset rebalance(Dataset rows, Dataset keys) {
        LogicalPlan plan = new RebalancePartitions(seq(expressions(keys)), rows.logicalPlan(), Option.empty(), Option.empty());
        return Dataset.ofRows(rows.sparkSession(), plan);
    }

    /** Writes all rows; each result is one file as a JSON object. `keys` selects the partition keys from `rows`, or is null. */
    public List write(Dataset rows, Dataset keys, String order) throws IOException {
        final QueryExecution query = rows.queryExecution();
        final List keyList = keys == null ? new ArrayList() : expressions(keys);
        final Order asked = (Order) new ObjectMapper().readValue(order, Order.class);
        return (List) SQLExecution.withNewExecutionId(query, Option.apply("lakehouse write"), new AbstractFunction0() {
            public Object apply() {
                // by position: optimization renames attributes
                Seq output = query.analyzed().output();
                Task task = new Task(asked, seq(keyList), output);
                return query.toRdd().toJavaRDD().mapPartitions(task, false).collect();
            }
        });
    }

    private static List expressions(Dataset keys) {
        ArrayList found = new ArrayList();
        for (Object one : CollectionConverters.asJava(((Project) keys.queryExecution().analyzed()).projectList())) {
            Expression expression = one instanceof Alias ? ((Alias) one).child() : (Expression) one;
            found.add(expression.transformUp(new Replace()));
        }
        return found;
    }

    static Seq seq(List items) {
        return CollectionConverters.asScala(items).toSeq();
    }

    /** What the optimizer would do to these expressions, which it never sees. */
    static final class Replace extends AbstractPartialFunction {
        public boolean isDefinedAt(Object node) {
            return node instanceof RuntimeReplaceable;
        }

        public Object applyOrElse(Object node, scala.Function1 otherwise) {
            return isDefinedAt(node) ? ((RuntimeReplaceable) node).replacement() : otherwise.apply(node);
        }
    }

    /** One task. */
    public static final class Task implements FlatMapFunction {
        private final Order order;
        private final Seq keys;
        private final Seq output;

        Task(Order order, Seq keys, Seq output) {
            this.order = order;
            this.keys = keys;
            this.output = output;
        }

        public Iterator call(Object rows) throws Exception {
            Run run = new Run(order, keys, output);
            try {
                return run.all((Iterator) rows).iterator();
            } catch (Throwable error) {
                run.abort();
                throw error;
            }
        }
    }

    /** The files of one task. */
    static final class Run {
        private final Order order;
        private final String name;
        private final UnsafeProjection project;
        private final DataType[] types;
        private final Seq keys;
        private final Seq output;
        private final Configuration settings;
        private final HashMap lanes = new HashMap();
        private final ArrayList finished = new ArrayList();
        private final ArrayList paths = new ArrayList();
        private int files;
        private long rows;

        Run(Order order, Seq keys, Seq output) {
            TaskContext context = TaskContext.get();
            this.order = order;
            this.keys = keys;
            this.output = output;
            this.name = "00000-" + context.partitionId() + "-" + context.taskAttemptId() + "-" + order.name;
            this.project = keys.isEmpty() ? null : UnsafeProjection.create(keys, output);
            this.types = new DataType[keys.size()];
            for (int i = 0; i < types.length; i++) {
                types[i] = ((Expression) keys.apply(i)).dataType();
            }
            this.settings = new Configuration(false);
            for (Object entry : order.settings.entrySet()) {
                settings.set((String) ((Map.Entry) entry).getKey(), (String) ((Map.Entry) entry).getValue());
            }
            settings.set(ParquetWriteSupport.SPARK_ROW_SCHEMA(), order.schemaJson);
            settings.set(SQLConf.PARQUET_OUTPUT_TIMESTAMP_TYPE().key(), "TIMESTAMP_MICROS");
            settings.set(SQLConf.PARQUET_WRITE_LEGACY_FORMAT().key(), "false");
            settings.set(SQLConf.PARQUET_FIELD_ID_WRITE_ENABLED().key(), "true");
            settings.set(SQLConf.PARQUET_ANNOTATE_VARIANT_LOGICAL_TYPE().key(), "true");
        }

        List all(Iterator input) throws Exception {
            if (project == null) {
                Lane lane = null;
                while (input.hasNext()) {
                    InternalRow row = (InternalRow) input.next();
                    if (lane == null) {
                        lane = lane(null);
                    }
                    put(lane, row);
                }
            } else {
                partitioned(input, !order.grouped);
            }
            for (Object lane : lanes.values()) {
                finish((Lane) lane);
            }
            return finished;
        }

        /** Rows to the lanes of their keys. While `free`, keys come in any order; when too many lanes would be open, the rest is sorted. */
        private void partitioned(Iterator input, boolean free) throws Exception {
            Lane lane = null;
            while (input.hasNext()) {
                InternalRow row = (InternalRow) input.next();
                UnsafeRow key = project.apply(row);
                if (lane == null || !lane.key.equals(key)) {
                    Lane next = (Lane) lanes.get(key);
                    if (next == null && free && lanes.size() >= order.maxOpenFiles) {
                        partitioned(sorted(row, input), false);
                        return;
                    }
                    if (!free && lane != null) {
                        finish(lane);
                        lanes.remove(lane.key);
                    }
                    lane = next == null ? lane(key.copy()) : next;
                }
                put(lane, row);
            }
        }

        /** Rows of equal keys one after the other; spills to disk when memory is short. */
        private Iterator sorted(InternalRow first, Iterator rest) throws IOException {
            ArrayList orders = new ArrayList();
            ArrayList fields = new ArrayList();
            for (Object key : CollectionConverters.asJava(keys)) {
                orders.add(new SortOrder((Expression) key, Ascending$.MODULE$, NullsFirst$.MODULE$, seq(new ArrayList())));
            }
            for (Object one : CollectionConverters.asJava(output)) {
                Attribute attribute = (Attribute) one;
                fields.add(new StructField(attribute.name(), attribute.dataType(), attribute.nullable(), attribute.metadata()));
            }
            StructType schema = new StructType((StructField[]) fields.toArray(new StructField[0]));
            UnsafeExternalRowSorter sorter = UnsafeExternalRowSorter.create(
                schema, RowOrdering.create(seq(orders), output), PrefixComparators.LONG, new KeyHash(project),
                TaskContext.get().taskMemoryManager().pageSizeBytes(), false);
            UnsafeProjection same = UnsafeProjection.create(schema);
            sorter.insertRow(same.apply(first));
            while (rest.hasNext()) {
                sorter.insertRow(same.apply((InternalRow) rest.next()));
            }
            return CollectionConverters.asJava(sorter.sort());
        }

        private Lane lane(UnsafeRow key) {
            Lane made = new Lane(key, key == null ? "" : folder(key));
            lanes.put(key, made);
            return made;
        }

        private void put(Lane lane, InternalRow row) throws Exception {
            for (int i = 0; i < order.required.length; i++) {
                if (row.isNullAt(order.required[i])) {
                    throw new IllegalStateException(order.requiredFailures[i]);
                }
            }
            if (lane.file == null) {
                open(lane);
            }
            lane.file.write(row);
            if ((++rows & 1023) == 0) {
                if (lane.file.size() >= order.targetBytes) {
                    finish(lane);
                }
                if (lanes.size() > 1) {
                    relieve();
                }
            }
        }

        /** Finishes the file that holds most in memory when all together hold too much. */
        private void relieve() throws IOException {
            long total = 0L;
            long most = -1L;
            Lane largest = null;
            for (Object one : lanes.values()) {
                Lane lane = (Lane) one;
                long waiting = lane.file == null ? 0L : lane.file.waiting();
                total += waiting;
                if (waiting > most) {
                    most = waiting;
                    largest = lane;
                }
            }
            if (total > order.bufferBytes) {
                finish(largest);
            }
        }

        private void open(Lane lane) throws IOException {
            files++;
            String folder = lane.folder.isEmpty() ? order.folder : order.folder + "/" + lane.folder;
            String number = String.format("%05d", new Object[] {Integer.valueOf(files)});
            Path path = Paths.get(folder + "/" + name + "-" + number + ".parquet");
            paths.add(path);
            lane.file = new NewDataFile(path, settings, order.codec, order.ids, order.floating, order.doubles);
        }

        private void finish(Lane lane) throws IOException {
            if (lane.file == null) {
                return;
            }
            StringBuilder keys = new StringBuilder();
            for (int i = 0; i < types.length; i++) {
                keys.append(i == 0 ? "" : ",");
                if (lane.key.isNullAt(i)) {
                    keys.append("null");
                } else {
                    byte[] text = String.valueOf(lane.key.get(i, types[i])).getBytes(StandardCharsets.UTF_8);
                    keys.append('"').append(Base64.getEncoder().encodeToString(text)).append('"');
                }
            }
            finished.add("{" + lane.file.close() + ",\"keys\":[" + keys + "]}");
            lane.file = null;
        }

        void abort() {
            for (Object lane : lanes.values()) {
                if (((Lane) lane).file != null) {
                    ((Lane) lane).file.forget();
                }
            }
            for (Object path : paths) {
                ((Path) path).toFile().delete();
            }
        }

        private String folder(UnsafeRow key) {
            StringBuilder out = new StringBuilder();
            int at = 0;
            for (int i = 0; i < order.fieldNames.length; i++) {
                String kind = order.fieldKinds[i];
                String text = "null";
                if (!kind.equals("void")) {
                    text = key.isNullAt(at) ? "null" : shown(key.get(at, types[at]), kind);
                    at++;
                }
                String part = encoded(order.fieldNames[i]) + "=" + encoded(text);
                out.append(i == 0 ? "" : "/").append(part.length() > 200 ? part.substring(0, 200) + "-" + digest(part) : part);
            }
            return out.toString();
        }

        private static String shown(Object value, String kind) {
            if (kind.equals("day")) {
                return LocalDate.ofEpochDay(((Number) value).longValue()).toString();
            }
            if (kind.equals("year")) {
                return four(1970L + ((Number) value).longValue());
            }
            if (kind.equals("month")) {
                long month = ((Number) value).longValue();
                return four(1970L + Math.floorDiv(month, 12L)) + "-" + two(1L + Math.floorMod(month, 12L));
            }
            if (kind.equals("hour")) {
                long hour = ((Number) value).longValue();
                return LocalDate.ofEpochDay(Math.floorDiv(hour, 24L)) + "-" + two(Math.floorMod(hour, 24L));
            }
            return String.valueOf(value);
        }

        private static String two(long value) {
            return value < 10 ? "0" + value : Long.toString(value);
        }

        private static String four(long value) {
            String text = Long.toString(Math.abs(value));
            return (value < 0 ? "-" : "") + "0000".substring(Math.min(4, text.length())) + text;
        }

        private static String encoded(String text) {
            return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("*", "%2A").replace("%7E", "~");
        }

        private static String digest(String part) {
            try {
                byte[] hash = MessageDigest.getInstance("SHA-256").digest(part.getBytes(StandardCharsets.UTF_8));
                StringBuilder out = new StringBuilder();
                for (int i = 0; i < 8; i++) {
                    out.append(Character.forDigit((hash[i] >> 4) & 15, 16)).append(Character.forDigit(hash[i] & 15, 16));
                }
                return out.toString();
            } catch (java.security.NoSuchAlgorithmException error) {
                throw new IllegalStateException(error);
            }
        }
    }

    /** Any order will do that brings equal keys together. */
    static final class KeyHash extends UnsafeExternalRowSorter.PrefixComputer {
        private final UnsafeProjection project;
        private final UnsafeExternalRowSorter.PrefixComputer.Prefix prefix = new UnsafeExternalRowSorter.PrefixComputer.Prefix();

        KeyHash(UnsafeProjection project) {
            this.project = project;
        }

        public UnsafeExternalRowSorter.PrefixComputer.Prefix computePrefix(InternalRow row) {
            prefix.value = project.apply(row).hashCode();
            prefix.isNull = false;
            return prefix;
        }
    }

    /** One partition and its open file. */
    static final class Lane {
        final UnsafeRow key;
        final String folder;
        NewDataFile file;

        Lane(UnsafeRow key, String folder) {
            this.key = key;
            this.folder = folder;
        }
    }
}
