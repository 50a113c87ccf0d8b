package lakehouse.spark;

/** `spark.sql.catalog.<name> = lakehouse.spark.LakehouseCatalog`, made so by `lakehouse.spark.attach`. */
public final class LakehouseCatalog extends TableCatalogOfLake {
    public LakehouseCatalog() {
    }
}
