package lakehouse.spark;

import org.apache.spark.sql.connector.read.InputPartition;

/** What one task reads. */
class SliceGroup implements InputPartition {
    final DataFileSlice[] slices;

    SliceGroup(DataFileSlice[] slices) {
        this.slices = slices;
    }
}
