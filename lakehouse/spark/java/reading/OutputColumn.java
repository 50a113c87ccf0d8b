package lakehouse.spark;

import java.io.Serializable;
import org.apache.spark.sql.types.DataType;

/** A column that a scan shows, and where it comes from. */
final class OutputColumn implements Serializable {
    static final String DATA = "data";
    static final String UUID = "uuid";

    /**
     * `data` and `uuid` are columns of the file; everything else is the name of a metadata column.
     */
    final String kind;
    final DataType type;
    /** Of the column of the file that it is made of, -1 for none; of the position in the file. */
    final int ordinal;
    final int positionOrdinal;

    OutputColumn(String kind, DataType type, int ordinal, int positionOrdinal) {
        this.kind = kind;
        this.type = type;
        this.ordinal = ordinal;
        this.positionOrdinal = positionOrdinal;
    }
}
