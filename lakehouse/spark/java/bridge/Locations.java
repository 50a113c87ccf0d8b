package lakehouse.spark;

/**
 * Locations of tables as Hadoop's file systems spell them (in Python: `locations.spark_location`).
 */
final class Locations {
    private Locations() {
    }

    static String forHadoop(String location) {
        int scheme = location.indexOf("://");
        if (scheme < 0) {
            return "file://" + (location.startsWith("file:") ? location.substring(5) : location);
        }
        String name = location.substring(0, scheme);
        return name.equals("s3") || name.equals("s3n")
            ? "s3a" + location.substring(scheme)
            : location;
    }
}
