package lakehouse.spark;

import java.util.Map;
import org.apache.parquet.io.api.Binary;
import org.apache.parquet.io.api.RecordConsumer;
import org.apache.parquet.schema.GroupType;
import org.apache.parquet.schema.Type;

/**
 * Hands values on to Parquet, and looks at floating point inside structs, lists and maps on the
 * way.
 */
final class FloatingConsumer extends RecordConsumer {
    private final RecordConsumer parquet;
    private Node at;

    FloatingConsumer(RecordConsumer parquet, GroupType schema, Map nested) {
        this.parquet = parquet;
        this.at = new Node(schema, null, "", nested);
    }

    public void startMessage() {
        parquet.startMessage();
    }

    public void endMessage() {
        parquet.endMessage();
    }

    public void startField(String field, int index) {
        at = at.fields[index];
        parquet.startField(field, index);
    }

    public void endField(String field, int index) {
        at = at.above;
        parquet.endField(field, index);
    }

    public void startGroup() {
        parquet.startGroup();
    }

    public void endGroup() {
        parquet.endGroup();
    }

    public void addInteger(int value) {
        parquet.addInteger(value);
    }

    public void addLong(long value) {
        parquet.addLong(value);
    }

    public void addBoolean(boolean value) {
        parquet.addBoolean(value);
    }

    public void addBinary(Binary value) {
        parquet.addBinary(value);
    }

    public void addFloat(float value) {
        if (at.values != null) {
            at.values.see(value);
        }
        parquet.addFloat(value);
    }

    public void addDouble(double value) {
        if (at.values != null) {
            at.values.see(value);
        }
        parquet.addDouble(value);
    }

    public void flush() {
        parquet.flush();
    }

    /** A field of the file's schema. */
    static final class Node {
        final Node above;
        final Node[] fields;
        final FloatingValues values;

        Node(Type type, Node above, String path, Map nested) {
            this.above = above;
            this.values = (FloatingValues) nested.get(path);
            this.fields = new Node[type.isPrimitive() ? 0 : type.asGroupType().getFieldCount()];
            for (int i = 0; i < fields.length; i++) {
                Type field = type.asGroupType().getType(i);
                String below = path.isEmpty() ? field.getName() : path + "\0" + field.getName();
                fields[i] = new Node(field, this, below, nested);
            }
        }
    }
}
