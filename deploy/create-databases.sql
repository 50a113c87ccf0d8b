-- PostgreSQL's first start, by psql: a role and a database for the catalog, and for Dagster.
-- Neither reaches the other's.
\getenv catalog_password CATALOG_DB_PASSWORD
\getenv dagster_password DAGSTER_DB_PASSWORD
CREATE ROLE catalog LOGIN PASSWORD :'catalog_password';
CREATE DATABASE catalog OWNER catalog;
REVOKE ALL ON DATABASE catalog FROM PUBLIC;
CREATE ROLE dagster LOGIN PASSWORD :'dagster_password';
CREATE DATABASE dagster OWNER dagster;
REVOKE ALL ON DATABASE dagster FROM PUBLIC;
