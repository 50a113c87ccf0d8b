package lakehouse.spark;

import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.vectorized.ColumnVector;

/**
 * Row lineage: what the file holds for a row that moved, else what the row inherits from its file
 * (specification: Row Lineage). A file from before format version 3 has nothing to inherit.
 */
final class Lineage extends DelegatingVector {
    private final ColumnVector positions;
    private final Number inherited;

    Lineage(ColumnVector stored, ColumnVector positions, Number inherited) {
        super(DataTypes.LongType, stored);
        this.positions = positions;
        this.inherited = inherited;
    }

    int at(int row) {
        return row;
    }

    public boolean hasNull() {
        return inherited == null;
    }

    public boolean isNullAt(int row) {
        return inherited == null;
    }

    public long getLong(int row) {
        if (!base.isNullAt(row)) {
            return base.getLong(row);
        }
        return inherited.longValue() + (positions == null ? 0L : positions.getLong(row));
    }
}
