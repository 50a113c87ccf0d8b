package lakehouse.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.connector.read.InputPartition;

/**
 * Cuts files into slices and packs these into tasks, by the settings that Spark has for its own
 * files: `spark.sql.files.maxPartitionBytes`, `openCostInBytes` and `minPartitionNum`.
 */
final class Slicing {
    private Slicing() {
    }

    static InputPartition[] groups(DataFileSlice[] files, SparkSession session) {
        long most = most(files, session);
        List packed = packed(slices(files, most), most, session);
        InputPartition[] groups = new InputPartition[packed.size()];
        for (int i = 0; i < groups.length; i++) {
            groups[i] = new SliceGroup((DataFileSlice[]) packed.get(i));
        }
        return groups;
    }

    /** Bytes of a task that reads its share of the files. */
    static long most(DataFileSlice[] files, SparkSession session) {
        SQLConf conf = session.sessionState().conf();
        long openCost = conf.filesOpenCostInBytes();
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

    /** Files in slices of at most so many bytes, the largest ones first. */
    static DataFileSlice[] slices(DataFileSlice[] files, long most) {
        ArrayList slices = new ArrayList();
        for (int i = 0; i < files.length; i++) {
            DataFileSlice file = files[i];
            for (long start = 0L; start < file.fileBytes; start += most) {
                long length = Math.min(most, file.fileBytes - start);
                slices.add(file.range(start, length));
            }
        }
        DataFileSlice[] ordered = (DataFileSlice[]) slices.toArray(new DataFileSlice[0]);
        Arrays.sort(ordered, new LargestFirst());
        return ordered;
    }

    /** Slices of each task, as arrays. */
    static List packed(DataFileSlice[] slices, long most, SparkSession session) {
        long openCost = session.sessionState().conf().filesOpenCostInBytes();
        ArrayList groups = new ArrayList();
        ArrayList group = new ArrayList();
        long size = 0L;
        for (int i = 0; i < slices.length; i++) {
            if (!group.isEmpty() && size + slices[i].length > most) {
                groups.add(group.toArray(new DataFileSlice[0]));
                group.clear();
                size = 0L;
            }
            group.add(slices[i]);
            size += slices[i].length + openCost;
        }
        if (!group.isEmpty()) {
            groups.add(group.toArray(new DataFileSlice[0]));
        }
        return groups;
    }

    static final class LargestFirst implements Comparator {
        public int compare(Object one, Object other) {
            return Long.compare(((DataFileSlice) other).length, ((DataFileSlice) one).length);
        }
    }
}
