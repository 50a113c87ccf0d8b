"""Jobs: `ingest` brings events in, `marts` computes assets, `maintain` looks after tables."""
