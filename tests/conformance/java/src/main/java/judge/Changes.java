package judge;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.iceberg.ExpireSnapshots;
import org.apache.iceberg.ManageSnapshots;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.Table;
import org.apache.iceberg.UpdatePartitionSpec;
import org.apache.iceberg.UpdateProperties;
import org.apache.iceberg.UpdateSchema;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.expressions.Literal;
import org.apache.iceberg.transforms.Transforms;
import org.apache.iceberg.types.Type;

/** Changes of metadata: schema, partition spec, references, properties, upkeep. */
final class Changes {
  private Changes() {}

  /** Whether the command was one of these. */
  static boolean apply(Table table, JsonNode command) throws Exception {
    switch (command.get("do").textValue()) {
      case "schema":
        schema(table, command);
        return true;
      case "spec":
        spec(table, command);
        return true;
      case "properties":
        UpdateProperties update = table.updateProperties();
        command.get("set").properties().forEach(
            one -> update.set(one.getKey(), one.getValue().textValue()));
        update.commit();
        return true;
      case "rewrite-manifests":
        table.rewriteManifests().clusterBy(file -> file.partition().toString()).commit();
        return true;
      case "expire":
        ExpireSnapshots expire = table.expireSnapshots().retainLast(1);
        command.get("snapshots").forEach(one -> expire.expireSnapshotId(one.longValue()));
        expire.cleanExpiredMetadata(command.path("clean").booleanValue());
        expire.commit();
        return true;
      case "reference":
        reference(table, command);
        return true;
      default:
        return false;
    }
  }

  private static void schema(Table table, JsonNode command) throws Exception {
    UpdateSchema update = table.updateSchema();
    for (JsonNode change : command.get("changes")) {
      String name = change.get("name").textValue();
      switch (change.get("change").textValue()) {
        case "add":
          Type type = type(change.get("type"));
          Literal<?> value =
              change.hasNonNull("default")
                  ? literal(Values.internal(change.get("default"), type), type)
                  : null;
          String parent = change.path("parent").textValue();
          if (change.path("required").booleanValue()) {
            update.addRequiredColumn(parent, name, type, value);
          } else {
            update.addColumn(parent, name, type, value);
          }
          break;
        case "rename":
          update.renameColumn(name, change.get("to").textValue());
          break;
        case "drop":
          update.deleteColumn(name);
          break;
        case "widen":
          update.updateColumn(name, type(change.get("type")).asPrimitiveType());
          break;
        case "optional":
          update.makeColumnOptional(name);
          break;
        case "first":
          update.moveFirst(name);
          break;
        default:
          throw new IllegalArgumentException("cannot change " + change);
      }
    }
    update.commit();
  }

  private static void spec(Table table, JsonNode command) {
    UpdatePartitionSpec update = table.updateSpec();
    for (JsonNode change : command.get("changes")) {
      if (change.get("change").textValue().equals("add")) {
        String transform = change.get("transform").textValue();
        update.addField(
            change.get("name").textValue(),
            Expressions.transform(
                change.get("column").textValue(), Transforms.fromString(transform)));
      } else {
        update.removeField(change.get("name").textValue());
      }
    }
    update.commit();
  }

  private static void reference(Table table, JsonNode command) {
    ManageSnapshots manage = table.manageSnapshots();
    String name = command.path("name").textValue();
    long snapshot = command.path("snapshot").longValue();
    switch (command.get("change").textValue()) {
      case "branch":
        manage.createBranch(name, snapshot).commit();
        break;
      case "tag":
        manage.createTag(name, snapshot).commit();
        break;
      case "rollback":
        manage.rollbackTo(snapshot).commit();
        break;
      case "cherry-pick":
        manage.cherrypick(snapshot).commit();
        break;
      case "fast-forward":
        manage.fastForwardBranch("main", name).commit();
        break;
      default:
        throw new IllegalArgumentException("cannot do " + command);
    }
  }

  private static Type type(JsonNode json) throws Exception {
    ObjectNode schema = Values.JSON.createObjectNode();
    schema.put("type", "struct").put("schema-id", 0);
    ObjectNode field = schema.putArray("fields").addObject();
    field.put("id", 1).put("name", "x").put("required", false).set("type", json);
    return SchemaParser.fromJson(Values.JSON.writeValueAsString(schema)).findType("x");
  }

  private static Literal<?> literal(Object value, Type type) {
    return type.typeId() == Type.TypeID.TIMESTAMP_NANO
        ? Expressions.nanos((Long) value)
        : Expressions.lit(value).to(type);
  }
}
