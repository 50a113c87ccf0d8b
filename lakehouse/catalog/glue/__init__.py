"""A catalog in the Glue Data Catalog of AWS."""
