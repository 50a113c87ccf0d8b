package lakehouse.spark;

/**
 * What a Parquet footer does not tell of floating point: NaN values, and the bounds of all others.
 */
final class FloatingValues {
    private long nans;
    private boolean some;
    private double low;
    private double high;

    void see(double value) {
        if (Double.isNaN(value)) {
            nans++;
        } else if (!some) {
            some = true;
            low = value;
            high = value;
        } else if (Double.compare(value, low) < 0) {
            low = value;
        } else if (Double.compare(value, high) > 0) {
            high = value;
        }
    }

    String json() {
        return "[" + nans + (some ? ",\"" + low + "\",\"" + high + "\"]" : "]");
    }
}
