package lakehouse.spark;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.column.ParquetProperties;
import org.apache.parquet.hadoop.ParquetFileWriter;
import org.apache.parquet.hadoop.ParquetWriter;
import org.apache.parquet.hadoop.api.WriteSupport;
import org.apache.parquet.hadoop.metadata.CompressionCodecName;
import org.apache.parquet.io.OutputFile;
import org.apache.parquet.io.api.RecordConsumer;
import org.apache.parquet.schema.LogicalTypeAnnotation;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.PrimitiveType;
import org.apache.parquet.schema.Type;
import org.apache.parquet.schema.Types;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.parquet.ParquetWriteSupport;
import org.apache.spark.sql.internal.SQLConf;
import scala.runtime.AbstractFunction0;

/**
 * One Parquet data file being written: Spark's encoding, all field ids, durable when it is closed,
 * measured beyond its footer.
 */
public final class NewDataFile {
    private final NewFile file;
    private final ParquetWriter writer;
    private final int[] ordinals;
    private final boolean[] doubles;
    private final FloatingValues[] floating;

    /** `settings` hold Spark's schema. */
    NewDataFile(NewFile file, final Configuration settings, WriteOrder order) {
        this.file = file;
        this.ordinals = order.floating;
        this.doubles = order.doubles;
        this.floating = new FloatingValues[ordinals.length + order.nestedFloating.length];
        HashMap nested = new HashMap();
        for (int i = 0; i < floating.length; i++) {
            floating[i] = new FloatingValues();
            if (i >= ordinals.length) {
                nested.put(order.nestedFloating[i - ordinals.length], floating[i]);
            }
        }
        final Builder builder = new Builder(file, order, nested);
        builder
            .withConf(settings)
            .withWriteMode(ParquetFileWriter.Mode.CREATE)
            .withCompressionCodec(CompressionCodecName.valueOf(order.codec))
            .withRowGroupSize(settings.getLong("parquet.block.size", 134217728L))
            .withPageSize(settings.getInt("parquet.page.size", 1048576))
            .withDictionaryPageSize(settings.getInt("parquet.dictionary.page.size", 2097152))
            .withRowGroupRowCountLimit(settings.getInt("parquet.block.row.count.limit", 1048576));
        withPages(builder, settings);
        withoutMisreadStatistics(builder, order);
        this.writer = (ParquetWriter) SQLConf.withExistingConf(plain(), new AbstractFunction0() {
            public Object apply() {
                try {
                    return builder.build();
                } catch (IOException error) {
                    throw new java.io.UncheckedIOException(error);
                }
            }
        });
    }

    /** What the table's properties say of pages, and of columns one by one. */
    private static void withPages(Builder builder, Configuration settings) {
        builder
            .withWriterVersion(ParquetProperties.WriterVersion.fromString(
                settings.get("parquet.writer.version", "v1")))
            .withPageRowCountLimit(settings.getInt("parquet.page.row.count.limit", 20000))
            .withMaxBloomFilterBytes(settings.getInt("parquet.bloom.filter.max.bytes", 1048576));
        for (Object one : settings.getValByRegex("^parquet\\.[^#]*#").entrySet()) {
            Map.Entry entry = (Map.Entry) one;
            String name = (String) entry.getKey();
            String value = (String) entry.getValue();
            String column = name.substring(name.indexOf('#') + 1);
            String what = name.substring(0, name.indexOf('#'));
            if (what.equals("parquet.enable.dictionary")) {
                builder.withDictionaryEncoding(column, Boolean.parseBoolean(value));
            } else if (what.equals("parquet.column.statistics.enabled")) {
                builder.withStatisticsEnabled(column, Boolean.parseBoolean(value));
            } else if (what.equals("parquet.bloom.filter.enabled")) {
                builder.withBloomFilterEnabled(column, Boolean.parseBoolean(value));
            } else if (what.equals("parquet.bloom.filter.fpp")) {
                builder.withBloomFilterFPP(column, Double.parseDouble(value));
            } else if (what.equals("parquet.bloom.filter.expected.ndv")) {
                builder.withBloomFilterNDV(column, Long.parseLong(value));
            }
        }
    }

    public void write(InternalRow row) throws IOException {
        for (int i = 0; i < ordinals.length; i++) {
            int at = ordinals[i];
            if (!row.isNullAt(at)) {
                floating[i].see(doubles[i] ? row.getDouble(at) : row.getFloat(at));
            }
        }
        writer.write(row);
    }

    /** About the bytes that the file would have if it ended here. */
    public long size() {
        return writer.getDataSize();
    }

    /** Bytes in memory. */
    public long waiting() {
        return writer.getDataSize() - file.written();
    }

    /** Makes the file durable; members of a JSON object that tell of it. */
    public String close() throws IOException {
        writer.close();
        StringBuilder out = new StringBuilder("\"path\":\"");
        out.append(Base64.getEncoder().encodeToString(
            file.getPath().getBytes(StandardCharsets.UTF_8)));
        out.append("\",\"size\":").append(file.written()).append(",\"floating\":[");
        for (int i = 0; i < floating.length; i++) {
            out.append(i == 0 ? "" : ",").append(floating[i].json());
        }
        return out.append("],\"footer\":\"")
            .append(Base64.getEncoder().encodeToString(file.footer()))
            .append('"')
            .toString();
    }

    /** Closes what is open; the file itself is for the caller to delete. */
    public void forget() {
        file.forget();
    }

    /**
     * Statistics of uuids are ordered in two ways (`uuid_columns.py`), so that a reader may skip
     * rows.
     */
    private static void withoutMisreadStatistics(Builder builder, WriteOrder order) {
        for (Object one : order.fixed.entrySet()) {
            Map.Entry fixed = (Map.Entry) one;
            if (((Number) fixed.getValue()).intValue() == -16) {
                builder.withStatisticsEnabled(((String) fixed.getKey()).replace('\0', '.'), false);
            }
        }
    }

    /** Days and instants are written as they are, whatever the session does with its own files. */
    private static SQLConf plain() {
        SQLConf conf = new SQLConf();
        conf.setConfString(SQLConf.PARQUET_REBASE_MODE_IN_WRITE().key(), "CORRECTED");
        return conf;
    }

    static final class Builder extends ParquetWriter.Builder {
        private final WriteOrder order;
        private final Map nested;

        Builder(OutputFile file, WriteOrder order, Map nested) {
            super(file);
            this.order = order;
            this.nested = nested;
        }

        protected ParquetWriter.Builder self() {
            return this;
        }

        protected WriteSupport getWriteSupport(Configuration settings) {
            return new WithIds(order, nested);
        }
    }

    /** Spark's rows as Spark writes them, with all field ids. */
    static final class WithIds extends WriteSupport {
        private final WriteSupport spark = new ParquetWriteSupport();
        private final WriteOrder order;
        private final Map nested;
        private MessageType schema;

        WithIds(WriteOrder order, Map nested) {
            this.order = order;
            this.nested = nested;
        }

        public WriteSupport.WriteContext init(Configuration settings) {
            WriteSupport.WriteContext made = spark.init(settings);
            ArrayList fields = new ArrayList();
            for (Object field : made.getSchema().getFields()) {
                fields.add(identified((Type) field, ((Type) field).getName()));
            }
            schema = new MessageType(made.getSchema().getName(), fields);
            return new WriteSupport.WriteContext(schema, made.getExtraMetaData());
        }

        private Type identified(Type type, String path) {
            Type found = type;
            if (!type.isPrimitive()) {
                ArrayList fields = new ArrayList();
                for (Object field : type.asGroupType().getFields()) {
                    fields.add(identified((Type) field, path + "\0" + ((Type) field).getName()));
                }
                found = type.asGroupType().withNewFields(fields);
            }
            Object bytes = order.fixed.get(path);
            if (bytes != null) {
                found = fixed(found, ((Number) bytes).intValue());
            }
            Object id = order.ids.get(path);
            return id == null ? found : found.withId(((Number) id).intValue());
        }

        /** Bytes of one length, which Spark has no type for. */
        private static Type fixed(Type type, int bytes) {
            Types.PrimitiveBuilder made = Types.primitive(
                PrimitiveType.PrimitiveTypeName.FIXED_LEN_BYTE_ARRAY, type.getRepetition());
            made.length(Math.abs(bytes));
            if (bytes < 0) {
                made.as(LogicalTypeAnnotation.uuidType());
            }
            Type named = (Type) (Object) made.named(type.getName());
            return type.getId() == null ? named : named.withId(type.getId().intValue());
        }

        public void prepareForWrite(RecordConsumer consumer) {
            spark.prepareForWrite(
                nested.isEmpty() ? consumer : new FloatingConsumer(consumer, schema, nested));
        }

        public void write(Object row) {
            spark.write(row);
        }

        public WriteSupport.FinalizedWriteContext finalizeWrite() {
            return spark.finalizeWrite();
        }
    }
}
