package lakehouse.spark;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.distributions.Distribution;
import org.apache.spark.sql.connector.distributions.Distributions;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NullOrdering;
import org.apache.spark.sql.connector.expressions.SortDirection;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.RequiresDistributionAndOrdering;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** Data files written by Spark's tasks in place, and committed by Python in one snapshot. */
class LakehouseWrite implements BatchWrite, RequiresDistributionAndOrdering {
    private final String table;
    private final Answerer answerer;
    private final Map plan;
    private final RowMapping mapping;
    private boolean committing;

    /** Of rows of the table: `verb` asks how they come to tasks, and what tasks do with them. */
    LakehouseWrite(String table, Answerer answerer, String verb) {
        this(table, answerer, verb, null);
    }

    /** Of rows of the columns `given`. */
    LakehouseWrite(String table, Answerer answerer, String verb, StructType given) {
        this.table = table;
        this.answerer = answerer;
        this.plan = answerer.map(verb, null);
        String wanted = (String) plan.get("wanted");
        this.mapping = wanted == null ? null
            : RowMapping.of(table, given, (StructType) DataType.fromJson(wanted));
    }

    /** By the tasks' own JVMs where they can, else by Python workers. */
    FileWriting writing() {
        String order = (String) plan.get("order");
        return order != null ? (FileWriting) new NativeWriting(
                WriteOrder.parse(order, SparkSession.active()))
            : (FileWriting) new WorkerWriting(
                answerer, (String) plan.get("rows"), Boolean.TRUE.equals(plan.get("lineage")));
    }

    public String description() {
        return "lakehouse " + table;
    }

    public BatchWrite toBatch() {
        return this;
    }

    public StreamingWrite toStreaming() {
        return new StreamedWrite(this);
    }

    // How rows come: see `distribution` in `write_answers.py`

    public Distribution requiredDistribution() {
        return distribution(plan);
    }

    public boolean distributionStrictlyRequired() {
        return false;
    }

    public long advisoryPartitionSizeInBytes() {
        return advisory(plan);
    }

    public SortOrder[] requiredOrdering() {
        return sortOrders(plan, "ordering");
    }

    static Distribution distribution(Map plan) {
        SortOrder[] ordered = sortOrders(plan, "ordered_distribution");
        if (ordered.length > 0) {
            return Distributions.ordered(ordered);
        }
        List told = (List) plan.get("clustering");
        Expression[] clustering = new Expression[told.size()];
        for (int i = 0; i < clustering.length; i++) {
            clustering[i] = PartitionTerms.transform((Map) told.get(i));
        }
        return clustering.length == 0 ? (Distribution) Distributions.unspecified()
            : (Distribution) Distributions.clustered(clustering);
    }

    static long advisory(Map plan) {
        boolean shuffled = !((List) plan.get("clustering")).isEmpty()
            || !((List) plan.get("ordered_distribution")).isEmpty();
        return shuffled ? ((Number) plan.get("advisory_bytes")).longValue() : 0L;
    }

    static SortOrder[] sortOrders(Map plan, String which) {
        List told = (List) plan.get(which);
        SortOrder[] out = new SortOrder[told.size()];
        for (int i = 0; i < out.length; i++) {
            Map one = (Map) told.get(i);
            boolean up = Boolean.TRUE.equals(one.get("ascending"));
            boolean nulls = Boolean.TRUE.equals(one.get("nulls_first"));
            out[i] = Expressions.sort(
                PartitionTerms.transform((Map) one.get("term")),
                up ? SortDirection.ASCENDING : SortDirection.DESCENDING,
                nulls ? NullOrdering.NULLS_FIRST : NullOrdering.NULLS_LAST);
        }
        return out;
    }

    // Writing

    public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
        return new RowWriterFactory(writing(), mapping);
    }

    /**
     * A speculative twin of a task writes files of its own; the one that comes second is not heard.
     */
    public boolean useCommitCoordinator() {
        return true;
    }

    public void commit(WriterCommitMessage[] messages) {
        Map told = written(messages);
        if (PipelineCaller.name() != null) {
            told.put("inputs", QueryInputs.ofThisThread());
        }
        commit(told);
    }

    private void commit(Map told) {
        committing = true;
        answerer.text("commit", told);
    }

    /** As the batch of this number of a stream. */
    void commit(WriterCommitMessage[] messages, long batch) {
        Map told = written(messages);
        told.put("batch", Long.valueOf(batch));
        commit(told);
    }

    /**
     * Files of a commit that failed are for Python to keep or delete: it knows whether it certainly
     * failed.
     */
    public void abort(WriterCommitMessage[] messages) {
        if (!committing) {
            answerer.text("discard", written(messages));
        }
    }

    Map written(WriterCommitMessage[] messages) {
        ArrayList files = new ArrayList();
        HashMap deletes = new HashMap();
        for (int i = 0; i < messages.length; i++) {
            if (messages[i] != null) {
                ((WrittenRows) messages[i]).addTo(files, deletes);
            }
        }
        HashMap out = new HashMap();
        out.put("files", files);
        out.put("deletes", deletes);
        return out;
    }

    public String toString() {
        return description();
    }
}
