package lakehouse.spark;

/**
 * Which class of Spark Declarative Pipelines asks, if any. What it asks for does not say so: it
 * truncates, alters and appends as everybody does (`pipeline_tables.py`).
 */
final class PipelineCaller {
    private static final String PIPELINES = "org.apache.spark.sql.pipelines.";

    private PipelineCaller() {
    }

    /** The innermost class, such as `DatasetManager`; null outside pipelines. */
    static String name() {
        StackTraceElement[] callers = new Throwable().getStackTrace();
        for (int i = 0; i < callers.length; i++) {
            String found = callers[i].getClassName();
            if (found.startsWith(PIPELINES)) {
                String inside = found.substring(found.lastIndexOf('.') + 1);
                int nested = inside.indexOf('$');
                return nested < 0 ? inside : inside.substring(0, nested);
            }
        }
        return null;
    }
}
