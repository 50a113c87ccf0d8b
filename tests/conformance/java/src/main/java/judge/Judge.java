package judge;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogProperties;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.PartitionSpecParser;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.SnapshotUpdate;
import org.apache.iceberg.Table;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.SupportsNamespaces;
import org.apache.iceberg.catalog.TableIdentifier;

/**
 * Iceberg's own implementation, told what to do: one command of JSON a line comes in, one answer
 * goes out, {"result": ...} or {"error": ...}.
 */
public final class Judge {
  private final Map<String, Catalog> catalogs = new HashMap<>();
  private final Map<String, SnapshotUpdate<?>> held = new HashMap<>();
  private final Map<String, Thread> storms = new HashMap<>();

  public static void main(String[] arguments) throws Exception {
    PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    System.setOut(System.err);
    BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    Judge judge = new Judge();
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      ObjectNode answer = Values.JSON.createObjectNode();
      try {
        answer.set("result", judge.run(Values.JSON.readTree(line)));
      } catch (Exception | StackOverflowError | AssertionError error) {
        answer.put("error", String.valueOf(error));
        ArrayNode stack = answer.putArray("stack");
        for (StackTraceElement element : error.getStackTrace()) {
          stack.add(element.toString());
        }
      }
      out.println(Values.JSON.writeValueAsString(answer));
    }
  }

  private JsonNode run(JsonNode command) throws Exception {
    switch (command.get("do").textValue()) {
      case "open":
        return open(command);
      case "create":
        return create(command);
      case "drop":
        return Values.JSON.valueToTree(
            catalog(command).dropTable(name(command), command.path("purge").booleanValue()));
      case "metadata":
        return Reads.metadata(table(command));
      case "rows":
        return Reads.rows(table(command), command);
      case "plan":
        return Reads.plan(table(command), command);
      case "places":
        return Reads.places(table(command), command);
      case "partitions":
        return Values.JSON.valueToTree(new Writes(table(command), command).partitions());
      case "order":
        return Reads.order(command);
      case "commit":
        held.remove(command.get("held").textValue()).commit();
        return null;
      case "storm":
        return storm(command);
      case "join":
        storms.remove(command.get("storm").textValue()).join();
        return null;
      default:
        Table table = table(command);
        return Changes.apply(table, command) ? null : write(table, command);
    }
  }

  /** Commits what a command writes, or holds it back under a name until `commit`. */
  private JsonNode write(Table table, JsonNode command) throws Exception {
    SnapshotUpdate<?> update = update(table, command);
    command.path("summary").properties().forEach(
        one -> update.set(one.getKey(), one.getValue().asText()));
    if (command.hasNonNull("branch")) {
      update.toBranch(command.get("branch").textValue());
    }
    if (command.hasNonNull("hold")) {
      held.put(command.get("hold").textValue(), update);
    } else {
      update.commit();
    }
    return null;
  }

  private static SnapshotUpdate<?> update(Table table, JsonNode command) throws Exception {
    Writes writes = new Writes(table, command);
    switch (command.get("do").textValue()) {
      case "append":
        return writes.append();
      case "copy-on-write":
        return writes.copyOnWrite();
      case "merge-on-read":
        return writes.mergeOnRead();
      case "equality-delete":
        return writes.equality();
      case "delete-files":
        return writes.deleteFiles();
      case "compact":
        return writes.compact();
      default:
        throw new IllegalArgumentException("cannot do " + command.get("do"));
    }
  }

  private JsonNode open(JsonNode command) {
    Map<String, String> properties = new HashMap<>();
    command.get("properties").properties().forEach(
        one -> properties.put(one.getKey(), one.getValue().textValue()));
    String name = command.path("catalog").asText("judge");
    String kind = command.get("kind").textValue();
    properties.put(CatalogUtil.ICEBERG_CATALOG_TYPE, kind);
    properties.put(CatalogProperties.CACHE_ENABLED, "false");
    catalogs.put(name, CatalogUtil.buildIcebergCatalog(name, properties, new Configuration()));
    return null;
  }

  private JsonNode create(JsonNode command) {
    Catalog catalog = catalog(command);
    Namespace namespace = name(command).namespace();
    SupportsNamespaces namespaces = (SupportsNamespaces) catalog;
    if (!namespaces.namespaceExists(namespace)) {
      namespaces.createNamespace(namespace);
    }
    Schema schema = SchemaParser.fromJson(command.get("schema"));
    PartitionSpec spec =
        command.hasNonNull("spec")
            ? PartitionSpecParser.fromJson(schema, command.get("spec"))
            : PartitionSpec.unpartitioned();
    Map<String, String> properties = new HashMap<>();
    command.path("properties").properties().forEach(
        one -> properties.put(one.getKey(), one.getValue().textValue()));
    catalog.createTable(name(command), schema, spec, properties);
    return null;
  }

  /** Appends batch after batch in a thread, while others commit too. */
  private JsonNode storm(JsonNode command) {
    Thread thread =
        new Thread(
            () ->
                command
                    .get("batches")
                    .forEach(
                        batch -> {
                          ObjectNode append = Values.JSON.createObjectNode();
                          append.put("do", "append").set("rows", batch);
                          try {
                            write(table(command), append);
                          } catch (Exception error) {
                            throw new IllegalStateException(error);
                          }
                        }));
    thread.start();
    storms.put(command.get("storm").textValue(), thread);
    return null;
  }

  private Catalog catalog(JsonNode command) {
    return catalogs.get(command.path("catalog").asText("judge"));
  }

  private static TableIdentifier name(JsonNode command) {
    return TableIdentifier.parse(command.get("table").textValue());
  }

  private Table table(JsonNode command) {
    return catalog(command).loadTable(name(command));
  }
}
