"""The catalog over HTTP, as Iceberg's REST catalog."""
