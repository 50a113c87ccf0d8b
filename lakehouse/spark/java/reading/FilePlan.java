package lakehouse.spark;

import java.util.ArrayList;
import java.util.Map;

/**
 * The files that Python planned for a scan.
 *
 * The answer is a JSON object, NUL, and for each file `location NUL bytes NUL details NUL`, where
 * locations lack the `prefix` that the object tells. Details are empty, or a JSON object:
 * `deletes` that apply to the file, `spec`, `partition`, `first_row` and `sequence` for metadata
 * columns.
 */
final class FilePlan {
    final long rows;
    final long bytes;
    /** Whether some file has deletes; whether some of these are position delete files. */
    final boolean deletes;
    final boolean deleteFiles;
    /** Whether there is something that Spark cannot read: equality deletes, files without ids. */
    final boolean forWorkers;
    final DataFileSlice[] files;

    private FilePlan(Map head, DataFileSlice[] files) {
        this.rows = ((Number) head.get("rows")).longValue();
        this.deletes = ((Boolean) head.get("deletes")).booleanValue();
        this.deleteFiles = ((Boolean) head.get("delete_files")).booleanValue();
        this.forWorkers = ((Boolean) head.get("for_workers")).booleanValue();
        this.files = files;
        long total = 0L;
        for (int i = 0; i < files.length; i++) {
            total += files[i].length;
        }
        this.bytes = total;
    }

    static FilePlan parse(String text) {
        int at = text.indexOf('\0');
        Map head = (Map) Answerer.parsed(text.substring(0, at), Map.class);
        String prefix = (String) head.get("prefix");
        ArrayList files = new ArrayList();
        while (at + 1 < text.length()) {
            int path = text.indexOf('\0', at + 1);
            int size = text.indexOf('\0', path + 1);
            int end = text.indexOf('\0', size + 1);
            long bytes = Long.parseLong(text.substring(path + 1, size));
            String details = end == size + 1 ? null : text.substring(size + 1, end);
            files.add(new DataFileSlice(
                prefix + text.substring(at + 1, path), 0L, bytes, bytes, details));
            at = end;
        }
        return new FilePlan(head, (DataFileSlice[]) files.toArray(new DataFileSlice[0]));
    }
}
