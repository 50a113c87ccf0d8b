package lakehouse.spark;

import java.io.IOException;
import java.io.Serializable;

/** How the tasks of one write make files. */
interface FileWriting extends Serializable {
    RowFiles open(int partition, long task) throws IOException;

    /** Whether rows end with the row id and when the row changed. */
    boolean lineage();
}
