package lakehouse.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.BiFunction;
import org.apache.spark.SparkRuntimeException;
import org.apache.spark.sql.classic.SparkSession;
import py4j.Py4JException;
import scala.Option;
import scala.Tuple2;
import scala.jdk.javaapi.CollectionConverters;

/**
 * An object of the Python process beside this JVM that answers questions: a lakehouse, a table of
 * it, an operation on a table.
 *
 * A question is a verb and JSON, with a Java object where there is one (a frame). An answer is
 * "O" and JSON, "E" and a failure as JSON, or another object of the Python process. One question
 * is one trip between the two processes, of well below a millisecond.
 */
public final class Answerer {
    static final ObjectMapper JSON = new ObjectMapper();
    private static final ConcurrentHashMap LAKES = new ConcurrentHashMap();
    private final BiFunction python;

    Answerer(BiFunction python) {
        this.python = python;
    }

    /** From now on catalogs whose option `lake` is `key` are answered by this object. */
    static void register(String key, BiFunction python) {
        LAKES.put(key, new Answerer(python));
    }

    /** Nobody answers any more for the catalogs of a session. */
    static void forget(SparkSession session) {
        for (Object value : CollectionConverters.asJava(
                session.sessionState().conf().getAllConfs()).values()) {
            LAKES.remove(value);
        }
    }

    /** The lakehouse of a catalog. */
    static Answerer lake(String catalog, String key) {
        Answerer found = key == null ? null : (Answerer) LAKES.get(key);
        if (found == null) {
            throw new IllegalArgumentException(
                "catalog " + catalog + " is answered by a Python process, and none has attached it"
                + " to this Spark application: call lakehouse.spark.attach(spark, lake, name=\""
                + catalog + "\") in the process that started the application");
        }
        return found;
    }

    /** The answer as text. */
    String text(String verb, Object arguments) {
        return text(verb, arguments, null);
    }

    String text(String verb, Object arguments, Object thing) {
        return ((String) ask(verb, arguments, thing)).substring(1);
    }

    Map map(String verb, Object arguments) {
        return (Map) parsed(text(verb, arguments), Map.class);
    }

    List list(String verb, Object arguments) {
        return (List) parsed(text(verb, arguments), List.class);
    }

    boolean yes(String verb, Object arguments) {
        return ((Boolean) parsed(text(verb, arguments), Boolean.class)).booleanValue();
    }

    /** The answer that is another answerer; null where there is nothing. */
    Answerer answerer(String verb, Object arguments) {
        Object answer = ask(verb, arguments, null);
        return answer instanceof BiFunction ? new Answerer((BiFunction) answer) : null;
    }

    /** The answer that is another answerer, or a map; null where there is nothing. */
    Object answererOrMap(String verb, Object arguments) {
        Object answer = ask(verb, arguments, null);
        return answer instanceof BiFunction
            ? (Object) new Answerer((BiFunction) answer)
            : parsed(((String) answer).substring(1), Map.class);
    }

    /** The answer that is an object of this JVM. */
    Object object(String verb, Object arguments) {
        return ask(verb, arguments, null);
    }

    Object object(String verb, Object arguments, Object thing) {
        return ask(verb, arguments, thing);
    }

    static Object parsed(String json, Class type) {
        try {
            return JSON.readValue(json, type);
        } catch (JsonProcessingException error) {
            throw new IllegalStateException(error);
        }
    }

    static String json(Object value) {
        try {
            return JSON.writeValueAsString(value);
        } catch (JsonProcessingException error) {
            throw new IllegalStateException(error);
        }
    }

    private Object ask(String verb, Object arguments, Object thing) {
        Object answer;
        try {
            answer = python.apply(verb + "\0" + (arguments == null ? "" : json(arguments)), thing);
        } catch (Py4JException error) {
            throw new IllegalStateException(
                "the Python process that attached the lakehouse does not answer (" + verb
                + "): a catalog lives as long as that process. " + error.getMessage(), error);
        }
        if (answer instanceof String && ((String) answer).charAt(0) == 'E') {
            throw failure((Map) parsed(((String) answer).substring(1), Map.class));
        }
        return answer;
    }

    /** What Python raised, as the exception that PySpark shows as a Python one again. */
    private static RuntimeException failure(Map told) {
        String message = told.get("type") + ": " + told.get("message");
        Object kind = told.get("kind");
        if ("input".equals(kind)) {
            return new IllegalArgumentException(message);
        }
        if ("unsupported".equals(kind)) {
            return new UnsupportedOperationException(message);
        }
        Map facts = java.util.Collections.singletonMap("errorMessage", message);
        return new SparkRuntimeException(
            "USER_RAISED_EXCEPTION",
            scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(facts)),
            null, new org.apache.spark.QueryContext[0], "");
    }
}
