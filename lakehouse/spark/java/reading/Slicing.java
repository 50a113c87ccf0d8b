package lakehouse.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.internal.SQLConf;

/**
 * Cuts files into slices and packs these into tasks.
 *
 * By the settings that Spark has for its own files (`spark.sql.files.maxPartitionBytes`,
 * `openCostInBytes` and `minPartitionNum`); where an option of the read or a property of the table
 * says something of splits, as Iceberg does: first come, first packed, with a lookback.
 */
final class Slicing {
    private static final long LOOKBACK = 10L;
    private static final long SLICES_OF_A_FILE = 10000L;
    private final long most;
    private final long openCost;
    /** Tasks that are open for a slice that fits; 0: the last one, as Spark does. */
    private final long lookback;

    private Slicing(long most, long openCost, long lookback) {
        this.most = most;
        this.openCost = openCost;
        this.lookback = lookback;
    }

    /** How the files of a scan of a table are cut and packed. */
    static Slicing of(LakehouseTable table, DataFileSlice[] files, SparkSession session) {
        SQLConf conf = session.sessionState().conf();
        Map asked = (Map) table.facts.get("splits");
        long openCost = asked(asked, "open_file_cost_bytes", conf.filesOpenCostInBytes());
        if (asked.isEmpty()) {
            return new Slicing(share(files, openCost, session), openCost, 0L);
        }
        return new Slicing(
            asked(asked, "target_size_bytes", share(files, openCost, session)), openCost,
            asked(asked, "lookback", LOOKBACK));
    }

    private static long asked(Map asked, String name, long otherwise) {
        return asked.containsKey(name) ? ((Number) asked.get(name)).longValue() : otherwise;
    }

    /** Bytes of a task that reads its share of the files. */
    private static long share(DataFileSlice[] files, long openCost, SparkSession session) {
        SQLConf conf = session.sessionState().conf();
        long total = 0L;
        for (int i = 0; i < files.length; i++) {
            total += files[i].fileBytes + openCost;
        }
        int parallel = conf.filesMinPartitionNum().isDefined()
            ? ((Number) conf.filesMinPartitionNum().get()).intValue()
            : session.leafNodeDefaultParallelism();
        return Math.min(conf.filesMaxPartitionBytes(),
            Math.max(openCost, total / Math.max(1, parallel)));
    }

    InputPartition[] groups(DataFileSlice[] files) {
        List packed = packed(files);
        InputPartition[] groups = new InputPartition[packed.size()];
        for (int i = 0; i < groups.length; i++) {
            groups[i] = new SliceGroup((DataFileSlice[]) packed.get(i));
        }
        return groups;
    }

    /** Slices of each task, as arrays. */
    List packed(DataFileSlice[] files) {
        DataFileSlice[] slices = slices(files);
        if (lookback > 0L) {
            return packedWithLookback(slices);
        }
        Arrays.sort(slices, new LargestFirst());
        ArrayList groups = new ArrayList();
        ArrayList group = new ArrayList();
        long size = 0L;
        for (int i = 0; i < slices.length; i++) {
            if (!group.isEmpty() && size + slices[i].length > most) {
                groups.add(array(group));
                group.clear();
                size = 0L;
            }
            group.add(slices[i]);
            size += slices[i].length + openCost;
        }
        if (!group.isEmpty()) {
            groups.add(array(group));
        }
        return groups;
    }

    /** Files in slices of at most so many bytes, which has an end for each file. */
    private DataFileSlice[] slices(DataFileSlice[] files) {
        ArrayList slices = new ArrayList();
        for (int i = 0; i < files.length; i++) {
            DataFileSlice file = files[i];
            long step = Math.max(most, file.fileBytes / SLICES_OF_A_FILE + 1L);
            for (long start = 0L; start < file.fileBytes; start += step) {
                slices.add(file.range(start, Math.min(step, file.fileBytes - start)));
            }
        }
        return array(slices);
    }

    /** As `combine` in `task_splits.py`. */
    private List packedWithLookback(DataFileSlice[] slices) {
        ArrayList groups = new ArrayList();
        ArrayList open = new ArrayList();
        for (int i = 0; i < slices.length; i++) {
            long weight = Math.max(slices[i].length, openCost);
            Bin found = null;
            for (int j = 0; j < open.size() && found == null; j++) {
                Bin one = (Bin) open.get(j);
                found = one.filled + weight <= most ? one : null;
            }
            if (found == null) {
                found = new Bin();
                open.add(found);
            }
            found.slices.add(slices[i]);
            found.filled += weight;
            if (open.size() > lookback) {
                Bin largest = (Bin) open.get(0);
                for (int j = 1; j < open.size(); j++) {
                    Bin one = (Bin) open.get(j);
                    largest = one.filled > largest.filled ? one : largest;
                }
                open.remove(largest);
                groups.add(array(largest.slices));
            }
        }
        for (Object one : open) {
            groups.add(array(((Bin) one).slices));
        }
        return groups;
    }

    private static DataFileSlice[] array(List slices) {
        return (DataFileSlice[]) slices.toArray(new DataFileSlice[0]);
    }

    static final class Bin {
        final ArrayList slices = new ArrayList();
        long filled;
    }

    static final class LargestFirst implements Comparator {
        public int compare(Object one, Object other) {
            return Long.compare(((DataFileSlice) other).length, ((DataFileSlice) one).length);
        }
    }
}
