package judge;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.HasTableOperations;
import org.apache.iceberg.MetadataColumns;
import org.apache.iceberg.OverwriteFiles;
import org.apache.iceberg.PartitionKey;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.RewriteFiles;
import org.apache.iceberg.RowDelta;
import org.apache.iceberg.Schema;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.SnapshotUpdate;
import org.apache.iceberg.StructLike;
import org.apache.iceberg.Table;
import org.apache.iceberg.data.BaseDeleteLoader;
import org.apache.iceberg.data.GenericFileWriterFactory;
import org.apache.iceberg.data.GenericRecord;
import org.apache.iceberg.data.IcebergGenerics;
import org.apache.iceberg.data.InternalRecordWrapper;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.deletes.BaseDVFileWriter;
import org.apache.iceberg.deletes.EqualityDeleteWriter;
import org.apache.iceberg.deletes.PositionDelete;
import org.apache.iceberg.deletes.PositionDeleteWriter;
import org.apache.iceberg.encryption.EncryptedOutputFile;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.io.DataWriter;
import org.apache.iceberg.io.DeleteWriteResult;
import org.apache.iceberg.io.OutputFileFactory;
import org.apache.iceberg.types.TypeUtil;
import org.apache.iceberg.types.Types;

/**
 * What Java writes. Every table has a column `rid` that names a row. Each method writes files and
 * returns an update that is not committed yet.
 */
final class Writes {
  private final Table table;
  private final JsonNode command;
  private final FileFormat format;
  private final boolean lineage;
  private final OutputFileFactory files;

  Writes(Table table, JsonNode command) {
    this.table = table;
    this.command = command;
    this.format = FileFormat.fromString(command.path("format").asText("parquet"));
    this.lineage = ((HasTableOperations) table).operations().current().formatVersion() >= 3;
    this.files =
        OutputFileFactory.builderFor(table, 1, System.nanoTime())
            .format(format)
            .operationId(UUID.randomUUID().toString())
            .build();
  }

  SnapshotUpdate<?> append() throws IOException {
    var append = command.path("fast").booleanValue() ? table.newFastAppend() : table.newAppend();
    written(given(), table.schema()).forEach(append::appendFile);
    return append;
  }

  /** Files with deleted or changed rows are written anew. */
  SnapshotUpdate<?> copyOnWrite() throws IOException {
    Map<Long, Record> changed = changed();
    Found found = find(ids());
    OverwriteFiles overwrite = table.newOverwrite();
    found.tasks.values().forEach(task -> overwrite.deleteFile(task.file()));
    List<Record> kept = new ArrayList<>();
    for (Record row : read(found.tasks.keySet())) {
      long rid = rid(row);
      if (changed.containsKey(rid)) {
        kept.add(moved(changed.get(rid), row, true));
      } else if (!found.ids.contains(rid)) {
        kept.add(row);
      }
    }
    written(kept, fileSchema()).forEach(overwrite::addFile);
    if (table.currentSnapshot() != null) {
      overwrite.validateFromSnapshot(table.currentSnapshot().snapshotId());
    }
    return overwrite.validateNoConflictingDeletes();
  }

  /** Position deletes in v2, deletion vectors in v3; changed rows go into new files. */
  SnapshotUpdate<?> mergeOnRead() throws IOException {
    Map<Long, Record> changed = changed();
    Found found = find(ids());
    RowDelta delta = table.newRowDelta();
    if (lineage) {
      vectors(found, delta);
    } else if (command.path("granularity").asText("file").equals("file")) {
      for (String path : found.positions.keySet()) {
        positions(found, List.of(path), delta);
      }
    } else {
      Map<String, List<String>> groups = new TreeMap<>();
      found.tasks.forEach(
          (path, task) -> {
            String key = task.spec().specId() + "/" + task.spec().partitionToPath(task.partition());
            groups.computeIfAbsent(key, ignored -> new ArrayList<>()).add(path);
          });
      for (List<String> paths : groups.values()) {
        positions(found, paths, delta);
      }
    }
    if (!changed.isEmpty()) {
      List<Record> rows = new ArrayList<>();
      for (Record row : read(found.tasks.keySet())) {
        if (changed.containsKey(rid(row))) {
          rows.add(moved(changed.get(rid(row)), row, true));
        }
      }
      written(rows, fileSchema()).forEach(delta::addRows);
    }
    if (table.currentSnapshot() != null) {
      delta.validateFromSnapshot(table.currentSnapshot().snapshotId());
    }
    return delta
        .validateDataFilesExist(found.tasks.keySet())
        .validateDeletedFiles()
        .validateNoConflictingDeleteFiles();
  }

  /**
   * Equality deletes of the given values of some fields, at any depth, in the partitions of `spec`
   * (an id; without one the table's) where these values lie. The rows of `beside` are added by the
   * same commit, which does not reach them.
   */
  SnapshotUpdate<?> equality() throws IOException {
    List<String> names = new ArrayList<>();
    command.get("columns").forEach(one -> names.add(one.textValue()));
    Schema keys = table.schema().select(names);
    int[] ids = names.stream().mapToInt(one -> keys.findField(one).fieldId()).toArray();
    GenericFileWriterFactory factory =
        new GenericFileWriterFactory.Builder(table)
            .dataSchema(table.schema())
            .dataFileFormat(format)
            .deleteFileFormat(format)
            .equalityFieldIds(ids)
            .equalityDeleteRowSchema(keys)
            .build();
    RowDelta delta = table.newRowDelta();
    PartitionSpec spec = spec();
    Map<PartitionKey, List<Record>> groups = new LinkedHashMap<>();
    for (Record row : given()) {
      groups.computeIfAbsent(key(spec, row), ignored -> new ArrayList<>()).add(row);
    }
    for (Map.Entry<PartitionKey, List<Record>> group : groups.entrySet()) {
      StructLike partition = spec.isUnpartitioned() ? null : group.getKey();
      EqualityDeleteWriter<Record> writer =
          factory.newEqualityDeleteWriter(newFile(spec, partition), spec, partition);
      try (writer) {
        for (Record row : group.getValue()) {
          writer.write(projected(row, keys.asStruct()));
        }
      }
      delta.addDeletes(writer.toDeleteFile());
    }
    written(given("beside"), table.schema()).forEach(delta::addRows);
    return delta;
  }

  /** Whole data files leave, those that hold one of the rows. */
  SnapshotUpdate<?> deleteFiles() throws IOException {
    var delete = table.newDelete();
    find(ids()).tasks.values().forEach(task -> delete.deleteFile(task.file()));
    return delete.validateFilesExist();
  }

  /** All data files become one a partition of the current spec; deletes are applied. */
  SnapshotUpdate<?> compact() throws IOException {
    RewriteFiles rewrite = table.newRewrite();
    Snapshot head = table.currentSnapshot();
    Map<String, FileScanTask> tasks = tasks();
    Set<String> vectors = new HashSet<>();
    for (FileScanTask task : tasks.values()) {
      rewrite.deleteFile(task.file());
      for (DeleteFile file : task.deletes()) {
        if (file.format() == FileFormat.PUFFIN
            && vectors.add(file.location() + "/" + file.contentOffset())) {
          rewrite.deleteFile(file);
        }
      }
    }
    written(read(tasks.keySet()), fileSchema()).forEach(rewrite::addFile);
    return rewrite
        .validateFromSnapshot(head.snapshotId())
        .dataSequenceNumber(head.sequenceNumber());
  }

  /** The partitions of `spec` where the given rows lie. */
  List<String> partitions() {
    PartitionSpec spec = spec();
    return given().stream().map(row -> spec.partitionToPath(key(spec, row))).toList();
  }

  private PartitionSpec spec() {
    return table.specs().get(command.path("spec").asInt(table.spec().specId()));
  }

  private List<Record> given() {
    return given("rows");
  }

  private List<Record> given(String name) {
    List<Record> rows = new ArrayList<>();
    Types.StructType struct = table.schema().asStruct();
    command.path(name).forEach(row -> rows.add((Record) Values.fromJson(row, struct)));
    return rows;
  }

  private Map<Long, Record> changed() {
    Map<Long, Record> rows = new HashMap<>();
    given().forEach(row -> rows.put(rid(row), row));
    return rows;
  }

  /** The rows that go: those named, and those that change. */
  private Set<Long> ids() {
    Set<Long> ids = new HashSet<>(changed().keySet());
    command.path("rids").forEach(one -> ids.add(one.longValue()));
    return ids;
  }

  /** The fields of a struct out of a wider one. */
  private static Record projected(Record row, Types.StructType struct) {
    Record result = GenericRecord.create(struct);
    for (Types.NestedField field : struct.fields()) {
      Object value = row.getField(field.name());
      if (value != null && field.type().isStructType()) {
        value = projected((Record) value, field.type().asStructType());
      }
      result.setField(field.name(), value);
    }
    return result;
  }

  private static long rid(Record row) {
    return (Long) row.getField("rid");
  }

  /** What files hold: in v3 with row ids, and where a row was changed last. */
  private Schema fileSchema() {
    return lineage ? MetadataColumns.schemaWithRowLineage(table.schema()) : table.schema();
  }

  /** The new values of a row under its old id. */
  private Record moved(Record values, Record old, boolean changed) {
    Record row = GenericRecord.create(fileSchema());
    for (Types.NestedField field : table.schema().columns()) {
      Object value = values.getField(field.name());
      row.setField(field.name(), Values.writable(value, field.type()));
    }
    if (lineage) {
      row.setField("_row_id", old.getField("_row_id"));
      String updated = "_last_updated_sequence_number";
      row.setField(updated, changed ? null : old.getField(updated));
    }
    return row;
  }

  private Map<String, FileScanTask> tasks() throws IOException {
    Map<String, FileScanTask> tasks = new TreeMap<>();
    try (CloseableIterable<FileScanTask> planned = table.newScan().planFiles()) {
      planned.forEach(task -> tasks.put(task.file().location(), task));
    }
    return tasks;
  }

  /** The live rows of some files, with all that must be kept. */
  private List<Record> read(Set<String> paths) throws IOException {
    Schema schema =
        TypeUtil.join(fileSchema(), new Schema(MetadataColumns.FILE_PATH));
    List<Record> rows = new ArrayList<>();
    try (CloseableIterable<Record> records = IcebergGenerics.read(table).project(schema).build()) {
      for (Record record : records) {
        if (paths.contains(record.getField("_file").toString())) {
          rows.add(moved(record, record, false));
        }
      }
    }
    return rows;
  }

  private static final class Found {
    final Set<Long> ids = new HashSet<>();
    final Map<String, FileScanTask> tasks = new TreeMap<>();
    final Map<String, List<Long>> positions = new TreeMap<>();
  }

  private Found find(Set<Long> ids) throws IOException {
    Found found = new Found();
    Map<String, FileScanTask> tasks = tasks();
    // whole rows: beside deletes by fields of structs Java finds none by some columns
    Schema schema =
        TypeUtil.join(
            table.schema(),
            new Schema(MetadataColumns.FILE_PATH, MetadataColumns.ROW_POSITION));
    try (CloseableIterable<Record> records = IcebergGenerics.read(table).project(schema).build()) {
      for (Record record : records) {
        if (ids.contains(rid(record))) {
          String path = record.getField("_file").toString();
          found.ids.add(rid(record));
          found.tasks.put(path, tasks.get(path));
          found.positions
              .computeIfAbsent(path, ignored -> new ArrayList<>())
              .add((Long) record.getField("_pos"));
        }
      }
    }
    found.positions.values().forEach(one -> one.sort(null));
    return found;
  }

  private void positions(Found found, List<String> paths, RowDelta delta) throws IOException {
    FileScanTask first = found.tasks.get(paths.get(0));
    StructLike partition = first.spec().isUnpartitioned() ? null : first.partition();
    GenericFileWriterFactory factory =
        new GenericFileWriterFactory.Builder(table)
            .dataSchema(table.schema())
            .dataFileFormat(format)
            .deleteFileFormat(format)
            .build();
    PositionDeleteWriter<Record> writer =
        factory.newPositionDeleteWriter(newFile(first.spec(), partition), first.spec(), partition);
    PositionDelete<Record> one = PositionDelete.create();
    try (writer) {
      for (String path : paths) {
        for (long position : found.positions.get(path)) {
          writer.write(one.set(path, position));
        }
      }
    }
    delta.addDeletes(writer.toDeleteFile());
  }

  private void vectors(Found found, RowDelta delta) throws IOException {
    BaseDeleteLoader loader =
        new BaseDeleteLoader(file -> table.io().newInputFile(file.location()));
    OutputFileFactory puffin =
        OutputFileFactory.builderFor(table, 1, System.nanoTime())
            .format(FileFormat.PUFFIN)
            .operationId(UUID.randomUUID().toString())
            .build();
    BaseDVFileWriter writer =
        new BaseDVFileWriter(
            puffin,
            path -> {
              List<DeleteFile> old = new ArrayList<>();
              for (DeleteFile file : found.tasks.get(path).deletes()) {
                if (file.equalityFieldIds() == null) {
                  old.add(file);
                }
              }
              return old.isEmpty() ? null : loader.loadPositionDeletes(old, path);
            });
    try (writer) {
      found.positions.forEach(
          (path, positions) -> {
            FileScanTask task = found.tasks.get(path);
            positions.forEach(
                position -> writer.delete(path, position, task.spec(), task.partition()));
          });
    }
    DeleteWriteResult result = writer.result();
    result.deleteFiles().forEach(delta::addDeletes);
    result.rewrittenDeleteFiles().forEach(delta::removeDeletes);
  }

  /** Rows as files, `files` of them a partition. */
  private List<DataFile> written(List<Record> rows, Schema schema) throws IOException {
    GenericFileWriterFactory factory =
        new GenericFileWriterFactory.Builder(table)
            .dataSchema(schema)
            .dataFileFormat(format)
            .deleteFileFormat(format)
            .build();
    PartitionSpec spec = table.spec();
    Map<PartitionKey, List<Record>> groups = new LinkedHashMap<>();
    for (Record row : rows) {
      groups.computeIfAbsent(key(spec, row), ignored -> new ArrayList<>()).add(row);
    }
    List<DataFile> result = new ArrayList<>();
    int most = Math.max(1, command.path("files").asInt(1));
    for (Map.Entry<PartitionKey, List<Record>> group : groups.entrySet()) {
      StructLike partition = spec.isUnpartitioned() ? null : group.getKey();
      List<Record> all = group.getValue();
      int step = Math.max(1, (all.size() + most - 1) / most);
      for (int start = 0; start < all.size(); start += step) {
        DataWriter<Record> writer =
            factory.newDataWriter(newFile(spec, partition), spec, partition);
        try (writer) {
          writer.write(all.subList(start, Math.min(all.size(), start + step)));
        }
        result.add(writer.toDataFile());
      }
    }
    return result;
  }

  private EncryptedOutputFile newFile(PartitionSpec spec, StructLike partition) {
    return partition == null ? files.newOutputFile() : files.newOutputFile(spec, partition);
  }

  private PartitionKey key(PartitionSpec spec, Record row) {
    PartitionKey key = new PartitionKey(spec, table.schema());
    InternalRecordWrapper internal = new InternalRecordWrapper(table.schema().asStruct());
    Record plain = row;
    if (row.struct().fields().size() != table.schema().columns().size()) {
      plain = GenericRecord.create(table.schema());
      for (Types.NestedField field : table.schema().columns()) {
        plain.setField(field.name(), row.getField(field.name()));
      }
    }
    key.partition(internal.wrap(plain));
    return key;
  }
}
