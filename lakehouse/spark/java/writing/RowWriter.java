package lakehouse.spark;

import java.io.IOException;
import java.util.HashMap;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/**
 * Writes the rows of a task; from format version 3 on with the lineage of rows that were there
 * before.
 */
class RowWriter implements DataWriter {
    private final RowFiles files;
    private final JoinedRow joined;
    private final InternalRow fresh;
    private final GenericInternalRow lineage;

    RowWriter(FileWriting writing, int partition, long task) throws IOException {
        this.files = writing.open(partition, task);
        this.joined = writing.lineage() ? new JoinedRow() : null;
        this.fresh = new GenericInternalRow(new Object[2]);
        this.lineage = new GenericInternalRow(new Object[2]);
    }

    /** A new row: its lineage is inherited from the file. */
    public void write(Object row) throws IOException {
        files.write(joined == null ? (InternalRow) row : joined.apply((InternalRow) row, fresh));
    }

    /**
     * A row that was there before; `metadata` end with its row id and when it changed, null for
     * now.
     */
    public void write(Object metadata, Object row) throws IOException {
        if (joined == null) {
            files.write((InternalRow) row);
            return;
        }
        InternalRow told = (InternalRow) metadata;
        int at = told.numFields() - 2;
        lineage.update(0, told.isNullAt(at) ? null : (Object) Long.valueOf(told.getLong(at)));
        lineage.update(
            1, told.isNullAt(at + 1) ? null : (Object) Long.valueOf(told.getLong(at + 1)));
        files.write(joined.apply((InternalRow) row, lineage));
    }

    public WriterCommitMessage commit() throws IOException {
        return new WrittenRows(files.finish(), new HashMap());
    }

    public void abort() {
        files.abort();
    }

    public void close() {
    }

    RowFiles files() {
        return files;
    }
}
