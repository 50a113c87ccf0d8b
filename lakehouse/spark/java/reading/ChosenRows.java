package lakehouse.spark;

import org.apache.spark.sql.vectorized.ColumnVector;

/** Some rows of a vector. */
final class ChosenRows extends DelegatingVector {
    private final int[] rows;

    ChosenRows(ColumnVector base, int[] rows) {
        super(base.dataType(), base);
        this.rows = rows;
    }

    int at(int row) {
        return rows[row];
    }

    /** A field of a struct is looked up by the row of the struct. */
    public ColumnVector getChild(int ordinal) {
        return new ChosenRows(base.getChild(ordinal), rows);
    }
}
