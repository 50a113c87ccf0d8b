package lakehouse.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import java.io.Serializable;
import java.util.HashMap;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.util.SerializableConfiguration;

/**
 * How rows are written as data files: what Python tells (`write_order.py`), and what crosses to
 * executors.
 */
public final class WriteOrder implements Serializable {
    /** A partition field: where its column lies, its type in Iceberg, and what is done to it. */
    public static final class Field implements Serializable {
        public String name;
        public int[] path;
        public String type;
        public String transform;
        public int width;
        public int precision;
        public int scale;
    }

    /** Settings of Hadoop's file systems; null: the folder is a path of a local disk. */
    SerializableConfiguration hadoop;
    /** A path, or the location of a folder as Hadoop spells it. */
    public String folder;
    public String name;
    /** Spark's schema of the files: uuids are binary; and that of the rows, where they are text. */
    public String schemaJson;
    public String shownJson;
    public String codec;
    public long targetBytes;
    public long bufferBytes;
    public int maxOpenFiles;
    /** Whether the last two columns are the row id and when the row changed. */
    public boolean lineage;
    /** Whether rows come partition by partition, in an order that must be kept. */
    public boolean grouped;
    public HashMap settings = new HashMap();
    /**
     * Field ids of list elements, map keys and values, which Spark's schema has no place for; paths
     * joined by NUL.
     */
    public HashMap ids = new HashMap();
    /** Bytes of columns of a fixed length by path; a uuid is minus 16. */
    public HashMap fixed = new HashMap();
    public Field[] fields = new Field[0];
    /**
     * Ordinals of columns that may hold no null though Spark thinks that they could, and what to
     * fail with.
     */
    public int[] required = new int[0];
    public String[] requiredFailures = new String[0];
    /**
     * Ordinals of float and double columns whose values are counted and bounded; which of them are
     * doubles.
     */
    public int[] floating = new int[0];
    public boolean[] doubles = new boolean[0];
    /** Paths in Parquet of floating point inside structs, lists and maps, parts joined by NUL. */
    public String[] nestedFloating = new String[0];
    /** Ordinals of columns that Spark holds as the text of a uuid. */
    public int[] uuids = new int[0];

    static WriteOrder parse(String json, SparkSession session) {
        try {
            WriteOrder order = (WriteOrder) Answerer.JSON.readValue(json, WriteOrder.class);
            if (order.folder.indexOf("://") > 0) {
                order.hadoop =
                    new SerializableConfiguration(session.sessionState().newHadoopConf());
            }
            return order;
        } catch (JsonProcessingException error) {
            throw new IllegalStateException(error);
        }
    }
}
