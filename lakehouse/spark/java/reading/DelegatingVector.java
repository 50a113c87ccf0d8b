package lakehouse.spark;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/** A vector over another one, which belongs to the reader and is closed by it. */
abstract class DelegatingVector extends ColumnVector {
    final ColumnVector base;

    DelegatingVector(DataType type, ColumnVector base) {
        super(type);
        this.base = base;
    }

    /** The row of the other vector. */
    abstract int at(int row);

    public void close() {
    }

    public boolean hasNull() {
        return base.hasNull();
    }

    public int numNulls() {
        return base.numNulls();
    }

    public boolean isNullAt(int row) {
        return base.isNullAt(at(row));
    }

    public boolean getBoolean(int row) {
        return base.getBoolean(at(row));
    }

    public byte getByte(int row) {
        return base.getByte(at(row));
    }

    public short getShort(int row) {
        return base.getShort(at(row));
    }

    public int getInt(int row) {
        return base.getInt(at(row));
    }

    public long getLong(int row) {
        return base.getLong(at(row));
    }

    public float getFloat(int row) {
        return base.getFloat(at(row));
    }

    public double getDouble(int row) {
        return base.getDouble(at(row));
    }

    public ColumnarArray getArray(int row) {
        return base.getArray(at(row));
    }

    public ColumnarMap getMap(int row) {
        return base.getMap(at(row));
    }

    public Decimal getDecimal(int row, int precision, int scale) {
        return base.getDecimal(at(row), precision, scale);
    }

    public UTF8String getUTF8String(int row) {
        return base.getUTF8String(at(row));
    }

    public byte[] getBinary(int row) {
        return base.getBinary(at(row));
    }

    public ColumnVector getChild(int ordinal) {
        return base.getChild(ordinal);
    }
}
