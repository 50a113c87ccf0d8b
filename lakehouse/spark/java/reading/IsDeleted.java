package lakehouse.spark;

import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.vectorized.ColumnVector;

/** Whether a row of a file is deleted. */
final class IsDeleted extends DelegatingVector {
    private final DeletedPositions deleted;

    IsDeleted(ColumnVector positions, DeletedPositions deleted) {
        super(DataTypes.BooleanType, positions);
        this.deleted = deleted;
    }

    int at(int row) {
        return row;
    }

    public boolean getBoolean(int row) {
        return deleted != null && deleted.contains(base.getLong(row));
    }
}
