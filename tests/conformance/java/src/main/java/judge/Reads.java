package judge;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.HasTableOperations;
import org.apache.iceberg.MetadataColumns;
import org.apache.iceberg.PartitionSpecParser;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableScan;
import org.apache.iceberg.data.IcebergGenerics;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.types.Comparators;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;
import org.apache.iceberg.util.SnapshotUtil;

/** What Java reads: rows, plans, metadata, orders. */
final class Reads {
  private Reads() {}

  /** Rows as structs by field id; with `lineage` also the two columns of row lineage. */
  static JsonNode rows(Table table, JsonNode command) throws IOException {
    IcebergGenerics.ScanBuilder scan = IcebergGenerics.read(table);
    Schema schema = table.schema();
    if (command.hasNonNull("snapshot")) {
      long id = command.get("snapshot").longValue();
      scan = scan.useSnapshot(id);
      schema = SnapshotUtil.schemaFor(table, id);
    }
    if (command.hasNonNull("ref")) {
      scan = scan.useSnapshot(table.refs().get(command.get("ref").textValue()).snapshotId());
    }
    if (command.hasNonNull("filter")) {
      scan = scan.where(Filters.parse(command.get("filter"), schema));
    }
    Schema wanted = schema;
    if (command.hasNonNull("select")) {
      List<String> names = new ArrayList<>();
      command.get("select").forEach(one -> names.add(one.textValue()));
      wanted = schema.select(names);
    }
    if (command.path("lineage").booleanValue()) {
      wanted = MetadataColumns.schemaWithRowLineage(wanted);
    }
    ArrayNode rows = Values.JSON.createArrayNode();
    try (CloseableIterable<Record> records = scan.project(wanted).build()) {
      for (Record record : records) {
        rows.add(Values.toJson(record, wanted.asStruct()));
      }
    }
    return rows;
  }

  /** The data files that a filter leaves. */
  static JsonNode plan(Table table, JsonNode command) throws IOException {
    TableScan scan =
        table.newScan().filter(Filters.parse(command.get("filter"), table.schema()));
    ArrayNode files = Values.JSON.createArrayNode();
    try (CloseableIterable<FileScanTask> tasks = scan.planFiles()) {
      for (FileScanTask task : tasks) {
        files.add(task.file().location());
      }
    }
    return files;
  }

  /** Where the data files of a reference lie, and what is deleted beside them. */
  static JsonNode places(Table table, JsonNode command) throws IOException {
    ArrayNode files = Values.JSON.createArrayNode();
    TableScan scan = table.newScan().useRef(command.path("ref").asText("main"));
    try (CloseableIterable<FileScanTask> tasks = scan.planFiles()) {
      for (FileScanTask task : tasks) {
        ObjectNode file = files.addObject();
        file.put("path", task.file().location());
        file.put("format", task.file().format().toString());
        file.put("spec", task.spec().specId());
        file.put("partition", task.spec().partitionToPath(task.file().partition()));
        file.put("sequence-number", task.file().dataSequenceNumber());
        ArrayNode compared = file.putArray("compared");
        task.deletes().stream()
            .filter(delete -> delete.equalityFieldIds() != null)
            .forEach(delete -> compared.add(Values.JSON.valueToTree(delete.equalityFieldIds())));
      }
    }
    return files;
  }

  static JsonNode metadata(Table table) throws IOException {
    TableMetadata metadata = ((HasTableOperations) table).operations().current();
    ObjectNode found = Values.JSON.createObjectNode();
    found.put("location", metadata.metadataFileLocation());
    found.put("format-version", metadata.formatVersion());
    found.set("schema", Values.JSON.readTree(SchemaParser.toJson(table.schema())));
    found.set("spec", Values.JSON.readTree(PartitionSpecParser.toJson(table.spec())));
    found.put("next-row-id", metadata.nextRowId());
    ArrayNode snapshots = found.putArray("snapshots");
    for (Snapshot snapshot : table.snapshots()) {
      ObjectNode one = snapshots.addObject();
      one.put("snapshot-id", snapshot.snapshotId());
      one.put("operation", snapshot.operation());
      one.set("summary", Values.JSON.valueToTree(snapshot.summary()));
    }
    if (table.currentSnapshot() != null) {
      found.put("current-snapshot-id", table.currentSnapshot().snapshotId());
    }
    ObjectNode refs = found.putObject("refs");
    table.refs().forEach((name, ref) -> refs.put(name, ref.snapshotId()));
    return found;
  }

  /** The places of values in the order of the type; equal ones share a place. */
  static JsonNode order(JsonNode command) {
    Type.PrimitiveType type = Types.fromPrimitiveString(command.get("type").textValue());
    Comparator<Object> comparator = Comparators.forType(type);
    List<Object> values = new ArrayList<>();
    command.get("values").forEach(one -> values.add(Values.internal(one, type)));
    List<Object> sorted = new ArrayList<>(values);
    sorted.sort(comparator);
    ArrayNode places = Values.JSON.createArrayNode();
    for (Object value : values) {
      int place = 0;
      while (comparator.compare(sorted.get(place), value) != 0) {
        place += 1;
      }
      places.add(place);
    }
    return places;
  }
}
