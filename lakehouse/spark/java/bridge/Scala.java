package lakehouse.spark;

import java.util.Arrays;
import java.util.List;
import java.util.Map;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Java's collections as Scala's immutable ones. */
final class Scala {
    private Scala() {
    }

    static Seq seq(List items) {
        return CollectionConverters.asScala(items).toSeq();
    }

    static Seq seq(Object[] items) {
        return seq(Arrays.asList(items));
    }

    static scala.collection.immutable.Map map(Map items) {
        return scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(items));
    }
}
