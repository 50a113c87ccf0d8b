package lakehouse.spark;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.ProjectingInternalRow;
import org.apache.spark.sql.types.StructType;

/** A row whose uuids, which Spark holds as text, are read as their sixteen bytes. */
final class UuidRow extends ProjectingInternalRow {
    private final boolean[] uuids;
    private InternalRow row;

    UuidRow(StructType schema, int[] ordinals) {
        super(schema, all(schema.length()));
        this.uuids = new boolean[schema.length()];
        for (int i = 0; i < ordinals.length; i++) {
            uuids[ordinals[i]] = true;
        }
    }

    private static scala.collection.immutable.IndexedSeq all(int columns) {
        java.util.ArrayList ordinals = new java.util.ArrayList();
        for (int i = 0; i < columns; i++) {
            ordinals.add(Integer.valueOf(i));
        }
        return Scala.seq(ordinals).toIndexedSeq();
    }

    UuidRow over(InternalRow given) {
        row = given;
        project(given);
        return this;
    }

    public byte[] getBinary(int ordinal) {
        return uuids[ordinal]
            ? Transforms.uuid(row.getUTF8String(ordinal))
            : row.getBinary(ordinal);
    }
}
