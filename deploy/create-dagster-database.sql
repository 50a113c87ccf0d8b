-- PostgreSQL's first start creates `catalog`; Dagster keeps its runs and events in a database of
-- its own.
CREATE DATABASE dagster;
