package lakehouse.spark;

import java.nio.ByteBuffer;
import java.util.UUID;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.unsafe.types.UTF8String;

/** A column of 16 bytes as the text of uuids, which is how Spark knows them. */
final class UuidText extends DelegatingVector {
    UuidText(ColumnVector bytes) {
        super(DataTypes.StringType, bytes);
    }

    int at(int row) {
        return row;
    }

    public UTF8String getUTF8String(int row) {
        return text(base.getBinary(row));
    }

    static UTF8String text(byte[] value) {
        ByteBuffer bytes = ByteBuffer.wrap(value);
        return UTF8String.fromString(new UUID(bytes.getLong(), bytes.getLong()).toString());
    }
}
