package lakehouse.spark;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.UnsafeExternalRowSorter;
import org.apache.spark.sql.execution.datasources.parquet.ParquetWriteSupport;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.TaskCompletionListener;

/**
 * The data files that one task writes, with Spark's own Parquet writer: one open file a partition.
 *
 * Each file is made under its final name, synced when it is complete, and named to nobody before
 * all of them are; a task that fails deletes its own. When too many partitions would be open, the
 * rows of further ones are sorted, on disk where memory is short, and written at the end.
 */
final class DataFileWriter implements RowFiles {
    private final WriteOrder order;
    private final String name;
    private final PartitionKey key;
    private final Configuration settings;
    private final HashMap lanes = new HashMap();
    private final ArrayList finished = new ArrayList();
    private final ArrayList opened = new ArrayList();
    private Lane last;
    private UuidRow uuids;
    private RowSorter later;
    private int files;
    private long rows;

    DataFileWriter(WriteOrder order, int partition, long task) {
        this.order = order;
        this.name = "00000-" + partition + "-" + task + "-" + order.name;
        this.key = order.fields.length == 0 ? null : new PartitionKey(order.fields);
        this.settings = settings(order);
        StructType schema = (StructType) DataType.fromJson(order.schemaJson);
        this.uuids = order.uuids.length == 0 ? null : new UuidRow(schema, order.uuids);
    }

    private static Configuration settings(WriteOrder order) {
        Configuration settings = new Configuration(false);
        for (Object entry : order.settings.entrySet()) {
            settings.set(
                (String) ((Map.Entry) entry).getKey(), (String) ((Map.Entry) entry).getValue());
        }
        settings.set(ParquetWriteSupport.SPARK_ROW_SCHEMA(), order.schemaJson);
        settings.set(SQLConf.PARQUET_OUTPUT_TIMESTAMP_TYPE().key(), "TIMESTAMP_MICROS");
        settings.set(SQLConf.PARQUET_WRITE_LEGACY_FORMAT().key(), "false");
        settings.set(SQLConf.PARQUET_FIELD_ID_WRITE_ENABLED().key(), "true");
        settings.set(SQLConf.PARQUET_ANNOTATE_VARIANT_LOGICAL_TYPE().key(), "true");
        return settings;
    }

    public void write(InternalRow row) throws IOException {
        if (key == null) {
            if (last == null) {
                last = lane(null);
            }
            put(last, row);
            return;
        }
        UnsafeRow found = key.of(row);
        if (last == null || !last.key.equals(found)) {
            Lane next = (Lane) lanes.get(found);
            if (order.grouped && last != null) {
                finish(last);
                lanes.remove(last.key);
            } else if (next == null && lanes.size() >= order.maxOpenFiles) {
                postpone(row);
                return;
            }
            last = next == null ? lane(found.copy()) : next;
        }
        put(last, row);
    }

    private void postpone(InternalRow row) throws IOException {
        if (later == null) {
            later = new RowSorter((StructType) DataType.fromJson(order.shownJson), key);
        }
        later.add(row);
    }

    public List finish() throws IOException {
        finishAll();
        if (later != null) {
            java.util.Iterator sorted = later.sorted();
            while (sorted.hasNext()) {
                InternalRow row = (InternalRow) sorted.next();
                UnsafeRow found = key.of(row);
                if (last == null || !last.key.equals(found)) {
                    finishAll();
                    last = lane(found.copy());
                }
                put(last, row);
            }
            finishAll();
        }
        TaskContext.get().addTaskCompletionListener(new Unheard());
        return finished;
    }

    private void finishAll() throws IOException {
        for (Object lane : lanes.values()) {
            finish((Lane) lane);
        }
        lanes.clear();
        last = null;
    }

    private Lane lane(UnsafeRow found) {
        Lane made = new Lane(found, found == null ? "" : key.folder(found));
        lanes.put(found, made);
        return made;
    }

    private void put(Lane lane, InternalRow row) throws IOException {
        for (int i = 0; i < order.required.length; i++) {
            if (row.isNullAt(order.required[i])) {
                throw new IllegalArgumentException(order.requiredFailures[i]);
            }
        }
        if (lane.file == null) {
            open(lane);
        }
        lane.file.write(uuids == null ? row : uuids.over(row));
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
        NewFile made = NewFile.at(folder + "/" + name + "-" + number + ".parquet", order);
        opened.add(made);
        lane.file = new NewDataFile(made, settings, order);
    }

    private void finish(Lane lane) throws IOException {
        if (lane.file != null) {
            String keys = lane.key == null ? "[]" : key.json(lane.key);
            finished.add("{" + lane.file.close() + ",\"keys\":" + keys + "}");
            lane.file = null;
        }
    }

    public void abort() {
        for (Object lane : lanes.values()) {
            if (((Lane) lane).file != null) {
                ((Lane) lane).file.forget();
            }
        }
        for (Object one : opened) {
            ((NewFile) one).delete();
        }
    }

    /** A task that was killed before its end is not asked what it has written. */
    private final class Unheard implements TaskCompletionListener {
        public void onTaskCompletion(TaskContext task) {
            if (task.isInterrupted() || task.isFailed()) {
                abort();
            }
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
