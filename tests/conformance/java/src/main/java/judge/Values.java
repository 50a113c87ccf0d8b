package judge;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.iceberg.data.GenericRecord;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;
import org.apache.iceberg.util.DateTimeUtil;
import org.apache.iceberg.variants.Variant;
import org.apache.iceberg.variants.VariantMetadata;
import org.apache.iceberg.variants.VariantValue;

/**
 * Values as JSON: exact, one spelling for each.
 *
 * <p>Dates, times and timestamps are their ticks, decimals their unscaled digits, floating point
 * the bits of the double (one spelling of NaN), uuid, fixed, binary, geometry and geography
 * hexadecimal, a variant an object of its metadata and value, both hexadecimal. A struct is an
 * object by field id, a map a list of pairs.
 */
final class Values {
  static final ObjectMapper JSON = new ObjectMapper();
  private static final JsonNodeFactory NODES = JsonNodeFactory.instance;
  private static final HexFormat HEX = HexFormat.of();

  private Values() {}

  /** A value as Iceberg's generic readers and writers hold it. */
  static Object fromJson(JsonNode node, Type type) {
    if (node == null || node.isNull()) {
      return null;
    }
    switch (type.typeId()) {
      case DATE:
        return DateTimeUtil.dateFromDays(node.intValue());
      case TIME:
        return DateTimeUtil.timeFromMicros(node.longValue());
      case TIMESTAMP:
        LocalDateTime micros = DateTimeUtil.timestampFromMicros(node.longValue());
        return ((Types.TimestampType) type).shouldAdjustToUTC() ? utc(micros) : micros;
      case TIMESTAMP_NANO:
        LocalDateTime nanos = DateTimeUtil.timestampFromNanos(node.longValue());
        return ((Types.TimestampNanoType) type).shouldAdjustToUTC() ? utc(nanos) : nanos;
      case FIXED:
        return HEX.parseHex(node.textValue());
      case VARIANT:
        VariantMetadata names = VariantMetadata.from(little(node.get("metadata")));
        return Variant.of(names, VariantValue.from(names, little(node.get("value"))));
      case STRUCT:
        Record record = GenericRecord.create(type.asStructType());
        for (Types.NestedField field : type.asStructType().fields()) {
          record.setField(field.name(), fromJson(node.get(id(field)), field.type()));
        }
        return record;
      case LIST:
        List<Object> list = new ArrayList<>();
        node.forEach(one -> list.add(fromJson(one, type.asListType().elementType())));
        return list;
      case MAP:
        Map<Object, Object> map = new LinkedHashMap<>();
        Types.MapType kinds = type.asMapType();
        node.forEach(
            pair ->
                map.put(fromJson(pair.get(0), kinds.keyType()),
                    fromJson(pair.get(1), kinds.valueType())));
        return map;
      default:
        return internal(node, type);
    }
  }

  /** A primitive value as filters, bounds and comparators hold it. */
  static Object internal(JsonNode node, Type type) {
    switch (type.typeId()) {
      case BOOLEAN:
        return node.booleanValue();
      case INTEGER:
      case DATE:
        return node.intValue();
      case LONG:
      case TIME:
      case TIMESTAMP:
      case TIMESTAMP_NANO:
        return node.longValue();
      case FLOAT:
        return (float) bits(node.textValue());
      case DOUBLE:
        return bits(node.textValue());
      case DECIMAL:
        int scale = ((Types.DecimalType) type).scale();
        return new BigDecimal(new BigInteger(node.textValue()), scale);
      case STRING:
        return node.textValue();
      case UUID:
        ByteBuffer buffer = ByteBuffer.wrap(HEX.parseHex(node.textValue()));
        return new UUID(buffer.getLong(), buffer.getLong());
      case FIXED:
      case BINARY:
      case GEOMETRY:
      case GEOGRAPHY:
        return ByteBuffer.wrap(HEX.parseHex(node.textValue()));
      default:
        throw new IllegalArgumentException("no values of type " + type);
    }
  }

  /** The inverse of {@link #fromJson}. */
  static JsonNode toJson(Object value, Type type) {
    if (value == null) {
      return NODES.nullNode();
    }
    switch (type.typeId()) {
      case BOOLEAN:
        return NODES.booleanNode((Boolean) value);
      case INTEGER:
        return NODES.numberNode((Integer) value);
      case LONG:
        return NODES.numberNode((Long) value);
      case FLOAT:
        return NODES.textNode(bits(((Float) value).doubleValue()));
      case DOUBLE:
        return NODES.textNode(bits((Double) value));
      case DATE:
        return NODES.numberNode(DateTimeUtil.daysFromDate((LocalDate) value));
      case TIME:
        return NODES.numberNode(DateTimeUtil.microsFromTime((LocalTime) value));
      case TIMESTAMP:
        return NODES.numberNode(DateTimeUtil.microsFromTimestamp(local(value)));
      case TIMESTAMP_NANO:
        return NODES.numberNode(DateTimeUtil.nanosFromTimestamp(local(value)));
      case DECIMAL:
        return NODES.textNode(((BigDecimal) value).unscaledValue().toString());
      case STRING:
        return NODES.textNode(value.toString());
      case UUID:
        UUID uuid = (UUID) value;
        ByteBuffer buffer = ByteBuffer.allocate(16);
        buffer.putLong(uuid.getMostSignificantBits()).putLong(uuid.getLeastSignificantBits());
        return NODES.textNode(HEX.formatHex(buffer.array()));
      case FIXED:
      case GEOMETRY:
      case GEOGRAPHY:
      case BINARY: // a fixed that is a partition value is read as a buffer
        byte[] raw = value instanceof byte[] ? (byte[]) value : bytes((ByteBuffer) value);
        return NODES.textNode(HEX.formatHex(raw));
      case VARIANT:
        Variant variant = (Variant) value;
        ByteBuffer names = empty(variant.metadata().sizeInBytes());
        variant.metadata().writeTo(names, 0);
        ByteBuffer encoded = empty(variant.value().sizeInBytes());
        variant.value().writeTo(encoded, 0);
        return NODES.objectNode()
            .put("metadata", HEX.formatHex(names.array()))
            .put("value", HEX.formatHex(encoded.array()));
      case STRUCT:
        ObjectNode struct = NODES.objectNode();
        List<Types.NestedField> fields = type.asStructType().fields();
        for (int i = 0; i < fields.size(); i += 1) {
          struct.set(id(fields.get(i)), toJson(((Record) value).get(i), fields.get(i).type()));
        }
        return struct;
      case LIST:
        ArrayNode list = NODES.arrayNode();
        ((List<?>) value).forEach(one -> list.add(toJson(one, type.asListType().elementType())));
        return list;
      case MAP:
        ArrayNode pairs = NODES.arrayNode();
        Types.MapType kinds = type.asMapType();
        ((Map<?, ?>) value)
            .forEach(
                (key, one) ->
                    pairs.addArray()
                        .add(toJson(key, kinds.keyType()))
                        .add(toJson(one, kinds.valueType())));
        return pairs;
      default:
        throw new IllegalArgumentException("no values of type " + type);
    }
  }

  /** A value that was read, as writers want it: identity partitions give a fixed as a buffer. */
  static Object writable(Object value, Type type) {
    if (value instanceof ByteBuffer && type.typeId() == Type.TypeID.FIXED) {
      return bytes((ByteBuffer) value);
    }
    if (value != null && type.isStructType()) {
      Record record = GenericRecord.create(type.asStructType());
      for (Types.NestedField field : type.asStructType().fields()) {
        Object inner = ((Record) value).getField(field.name());
        record.setField(field.name(), writable(inner, field.type()));
      }
      return record;
    }
    return value;
  }

  static byte[] bytes(ByteBuffer buffer) {
    byte[] result = new byte[buffer.remaining()];
    buffer.duplicate().get(result);
    return result;
  }

  private static ByteBuffer little(JsonNode node) {
    return ByteBuffer.wrap(HEX.parseHex(node.textValue())).order(ByteOrder.LITTLE_ENDIAN);
  }

  private static ByteBuffer empty(int size) {
    return ByteBuffer.allocate(size).order(ByteOrder.LITTLE_ENDIAN);
  }

  private static String id(Types.NestedField field) {
    return String.valueOf(field.fieldId());
  }

  private static OffsetDateTime utc(LocalDateTime time) {
    return time.atOffset(ZoneOffset.UTC);
  }

  private static LocalDateTime local(Object value) {
    return value instanceof OffsetDateTime
        ? ((OffsetDateTime) value).withOffsetSameInstant(ZoneOffset.UTC).toLocalDateTime()
        : (LocalDateTime) value;
  }

  private static double bits(String text) {
    return text.equals("nan")
        ? Double.NaN
        : Double.longBitsToDouble(Long.parseUnsignedLong(text, 16));
  }

  private static String bits(double value) {
    return Double.isNaN(value) ? "nan" : String.format("%016x", Double.doubleToRawLongBits(value));
  }
}
