"""dbt-core, which reads OSI documents with MetricFlow's converter, as judge of our export."""
