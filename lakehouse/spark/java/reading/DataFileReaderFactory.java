package lakehouse.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SerializableConfiguration;
import scala.Function1;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction0;

/**
 * Makes readers of data files in tasks: Spark's own vectorised Parquet reader finds columns by
 * field id; deleted rows and what is beside the rows of a file come from around it.
 */
final class DataFileReaderFactory implements PartitionReaderFactory {
    private static final String CORRECTED = "CORRECTED";
    private final Function1 read;
    private final Function1 readDeletes;
    private final SerializableConfiguration hadoop;
    private final OutputColumn[] columns;
    private final boolean columnar;
    private final boolean plain;
    private final boolean showsDeleted;

    private DataFileReaderFactory(
            Function1 read, Function1 readDeletes, SerializableConfiguration hadoop,
            OutputColumn[] columns, boolean columnar, boolean plain, boolean showsDeleted) {
        this.read = read;
        this.readDeletes = readDeletes;
        this.hadoop = hadoop;
        this.columns = columns;
        this.columnar = columnar;
        this.plain = plain;
        this.showsDeleted = showsDeleted;
    }

    static DataFileReaderFactory of(
            SparkSession session, LakehouseTable table, StructType required, List rowGroupFilters,
            FilePlan plan) {
        OutputColumns made = new OutputColumns(required, table, plan.deletes);
        Configuration hadoop = session.sessionState().newHadoopConf();
        ParquetFileFormat parquet = new ParquetFileFormat();
        StructType physical = made.physical();
        boolean columnar = parquet.supportBatch(session, physical);
        Function1 read = reader(session, parquet, physical, rowGroupFilters, hadoop, columnar);
        Function1 deletes = null;
        if (plan.deleteFiles) {
            deletes = reader(session, parquet, PositionDeletes.schema(), new ArrayList(),
                session.sessionState().newHadoopConf(), false);
        }
        return new DataFileReaderFactory(
            read, deletes, plan.deletes ? new SerializableConfiguration(hadoop) : null,
            made.columns(), columnar, made.plain(), made.showsDeleted());
    }

    /** Whether the readers of these columns give batches. */
    static boolean isColumnar(
            SparkSession session, LakehouseTable table, StructType required, boolean deletes) {
        return new ParquetFileFormat().supportBatch(
            session, new OutputColumns(required, table, deletes).physical());
    }

    private static Function1 reader(
            SparkSession session, ParquetFileFormat parquet, StructType schema, List filters,
            Configuration hadoop, boolean columnar) {
        HashMap options = new HashMap();
        options.put(FileFormat.OPTION_RETURNING_BATCH(), String.valueOf(columnar));
        // Iceberg's dates and timestamps are proleptic Gregorian, whoever wrote the file
        options.put("datetimeRebaseMode", CORRECTED);
        options.put("int96RebaseMode", CORRECTED);
        // a file without any id is an error: by name it might show other columns, or nulls
        hadoop.setBoolean(SQLConf.PARQUET_FIELD_ID_READ_ENABLED().key(), true);
        hadoop.setBoolean(SQLConf.IGNORE_MISSING_PARQUET_FIELD_ID().key(), false);
        // a page that changed after it was written is an error: decoded all the same it may be
        // other rows
        hadoop.setBoolean("parquet.page.verify-checksum.enabled", true);
        return parquet.buildReaderWithPartitionValues(
            session, schema, new StructType(), schema, Scala.seq(filters), Scala.map(options),
            hadoop);
    }

    public boolean supportColumnarReads(InputPartition partition) {
        return columnar;
    }

    public PartitionReader createReader(InputPartition partition) {
        return new RowReader(((SliceGroup) partition).slices, this);
    }

    public PartitionReader createColumnarReader(InputPartition partition) {
        return new BatchReader(((SliceGroup) partition).slices, this);
    }

    OutputColumn[] columns() {
        return columns;
    }

    /** Whether what Parquet gives is what is asked for, unless a file has deletes. */
    boolean isPlain() {
        return plain;
    }

    /** Whether deleted rows are shown, marked as such. */
    boolean showsDeleted() {
        return showsDeleted;
    }

    /** The rows or batches of a slice. */
    scala.collection.Iterator open(DataFileSlice slice) {
        return opened(read, slice.partitionedFile());
    }

    /**
     * What a reader gives of a file. Where it is Spark's reader of rows, it takes columns for those
     * of their ids or names as the settings of the query say, not those that it was made with.
     */
    static scala.collection.Iterator opened(
            final Function1 read, final PartitionedFile file) {
        SQLConf conf = new SQLConf();
        conf.setConfString(SQLConf.PARQUET_FIELD_ID_READ_ENABLED().key(), "true");
        return (scala.collection.Iterator) SQLConf.withExistingConf(conf, new AbstractFunction0() {
            public Object apply() {
                return read.apply(file);
            }
        });
    }

    /** Positions deleted from a file; null for none. */
    DeletedPositions deleted(DataFileSlice slice, Map details) {
        List told = (List) details.get("deletes");
        return told == null ? null
            : PositionDeletes.load(slice.location, told, hadoop.value(), readDeletes);
    }
}
