package lakehouse.spark;

import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DeltaWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/** Collects the positions of rows that go, and writes rows that come. */
final class DeltaRowWriter extends RowWriter implements DeltaWriter {
    private final HashMap deleted = new HashMap();
    private long last;
    private DeletedPositions positions;

    DeltaRowWriter(FileWriting writing, int partition, long task) throws IOException {
        super(writing, partition, task);
    }

    public void delete(Object metadata, Object id) {
        InternalRow row = (InternalRow) id;
        long file = row.getLong(0);
        if (positions == null || last != file) {
            last = file;
            positions = (DeletedPositions) deleted.get(Long.valueOf(file));
            if (positions == null) {
                positions = new DeletedPositions();
                deleted.put(Long.valueOf(file), positions);
            }
        }
        positions.add(row.getLong(1));
    }

    public void update(Object metadata, Object id, Object row) throws IOException {
        delete(metadata, id);
        write(metadata, row);
    }

    public void reinsert(Object metadata, Object row) throws IOException {
        write(metadata, row);
    }

    public void insert(Object row) throws IOException {
        write(row);
    }

    public void write(Object row) throws IOException {
        super.write(row);
    }

    public WriterCommitMessage commit() throws IOException {
        HashMap told = new HashMap();
        for (Object one : deleted.entrySet()) {
            Map.Entry entry = (Map.Entry) one;
            told.put(entry.getKey(), ((DeletedPositions) entry.getValue()).base64());
        }
        return new WrittenRows(files().finish(), told);
    }
}
