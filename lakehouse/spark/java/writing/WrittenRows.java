package lakehouse.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/**
 * What one task wrote: data files, each told as JSON, and deleted positions, as base64 of bitmaps,
 * by `FileHash`.
 */
final class WrittenRows implements WriterCommitMessage {
    private final String[] files;
    private final HashMap deletes;

    WrittenRows(List files, HashMap deletes) {
        this.files = (String[]) files.toArray(new String[0]);
        this.deletes = deletes;
    }

    void addTo(List all, Map deleted) {
        for (int i = 0; i < files.length; i++) {
            all.add(files[i]);
        }
        for (Object one : deletes.entrySet()) {
            Map.Entry entry = (Map.Entry) one;
            List found = (List) deleted.get(entry.getKey());
            if (found == null) {
                found = new ArrayList();
                deleted.put(entry.getKey(), found);
            }
            found.add(entry.getValue());
        }
    }
}
