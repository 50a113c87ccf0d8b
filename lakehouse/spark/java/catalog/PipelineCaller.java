package lakehouse.spark;

/**
 * Which class of Spark Declarative Pipelines asks, if any, or the writer of a stream. What they ask
 * for does not say so: they truncate, create, alter and append as everybody does
 * (`pipeline_tables.py`).
 */
final class PipelineCaller {
    private static final String PIPELINES = "org.apache.spark.sql.pipelines.";

    private PipelineCaller() {
    }

    /** Whether a stream asks that is about to start. */
    static boolean isStream() {
        StackTraceElement[] callers = new Throwable().getStackTrace();
        for (int i = 0; i < callers.length; i++) {
            if (callers[i].getClassName().contains(".DataStreamWriter")) {
                return true;
            }
        }
        return false;
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
