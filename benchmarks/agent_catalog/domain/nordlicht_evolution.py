"""Changes that happen to the lakehouse after the catalog was written.

`evolve(tables)` returns steps as data: name, table, kind, description, `ops` (schema and data operations in words of
rename / add / drop / promote / rewrite / append / delete / drop_table / add_table / note), `breaks` (ids of the
verifiable statements the step makes false), `breaks_unverifiable` (ids no query can show to be false) and `apply`, a
function from a dict of tables to a new dict. Steps are meant to be applied in order. Steps N01-N10 make nothing false.
"""
from __future__ import annotations

import duckdb
import pyarrow as pa

Tables = dict[str, pa.Table]


def query(tables: Tables, sql: str, schema: pa.Schema | None = None) -> pa.Table:
    """Run DuckDB SQL over the tables (names as namespace.table), cast to `schema` if one is given."""
    with duckdb.connect() as con:
        con.execute("set timezone = 'UTC'; set threads = 2")
        for name, table in tables.items():
            if name not in sql:
                continue
            con.execute(f"create schema if not exists {name.split('.')[0]}")
            con.register("incoming", table)
            con.execute(f"create table {name} as select * from incoming")
            con.unregister("incoming")
        out = con.execute(sql).to_arrow_table()
    return out.cast(schema) if schema else out


def rewrite(name: str, sql: str, same_schema: bool = True):
    """An `apply` that replaces one table by the result of a query over all tables."""
    def apply(tables: Tables) -> Tables:
        return {**tables, name: query(tables, sql, tables[name].schema if same_schema else None)}
    return apply


def append(name: str, sql: str):
    """An `apply` that appends the rows of a query to one table."""
    def apply(tables: Tables) -> Tables:
        old = tables[name]
        return {**tables, name: pa.concat_tables([old, query(tables, sql, old.schema)])}
    return apply


def rename(name: str, old: str, new: str):
    """An `apply` that renames one column."""
    def apply(tables: Tables) -> Tables:
        table = tables[name]
        return {**tables, name: table.rename_columns([new if c == old else c for c in table.column_names])}
    return apply


def drop_column(name: str, column: str):
    """An `apply` that drops one column."""
    return lambda tables: {**tables, name: tables[name].drop_columns([column])}


def drop_table(name: str):
    """An `apply` that drops one table."""
    return lambda tables: {k: v for k, v in tables.items() if k != name}


def change_type(name: str, column: str, new_type: pa.DataType):
    """An `apply` that promotes one column to a wider type."""
    def apply(tables: Tables) -> Tables:
        table = tables[name]
        i = table.column_names.index(column)
        return {**tables, name: table.set_column(i, pa.field(column, new_type), table.column(column).cast(new_type))}
    return apply


def add_column(name: str, column: str, kind: pa.DataType):
    """An `apply` that adds one column of NULLs."""
    return lambda tables: {**tables, name: tables[name].append_column(column, pa.nulls(tables[name].num_rows, kind))}


def _replace_budget(tables: Tables) -> Tables:
    """finance.budget loses the months from 2025-04 on; finance.plan takes over (thousands of euros, one version)."""
    plan = query(tables, "select cc, per as month, arg_max(amt, ver) / 1000 as keur from finance.budget where per >= date '2025-04-01' group by all")
    budget = query(tables, "select * from finance.budget where per < date '2025-04-01'", tables["finance.budget"].schema)
    return {**tables, "finance.budget": budget, "finance.plan": plan}


def _step(name, table, kind, description, apply, ops, breaks=(), unverifiable=()):
    return {"name": name, "table": table, "kind": kind, "description": description, "ops": ops, "apply": apply,
            "breaks": list(breaks), "breaks_unverifiable": list(unverifiable)}


def _breaking() -> list[dict]:
    """Steps that make statements false."""
    return [
        _step("B01", "sales.addr", "rename", "zip is renamed to postcode", rename("sales.addr", "zip", "postcode"),
              [{"op": "rename", "column": "zip", "to": "postcode"}], ["S019"]),
        _step("B02", "sales.ord", "new_code", "new status 35 (partly shipped); some shipped orders since March get it",
              rewrite("sales.ord", "select * replace (case when st = 30 and ord_dt >= date '2025-03-01' and ord_id % 3 = 0 then 35 else st end as st) from sales.ord"),
              [{"op": "rewrite", "column": "st"}], ["S028", "S086"]),
        _step("B03", "product.evt", "unit_from_date", "dur is delivered in microseconds since 2025-06-01",
              rewrite("product.evt", "select * replace (case when ts >= timestamptz '2025-06-01 00:00:00+00' then dur * 1000 else dur end as dur) from product.evt"),
              [{"op": "rewrite", "column": "dur"}], ["S147", "S156"]),
        _step("B04", "billing.bal_snap", "stops_refreshing", "the month-end run of June 2025 did not happen",
              rewrite("billing.bal_snap", "select * from billing.bal_snap where snap_dt < date '2025-06-30'"),
              [{"op": "delete", "where": "snap_dt = 2025-06-30"}], ["S108", "S109"]),
        _step("B05", "finance.budget", "deprecated", "the budget ends with 2025-03; finance.plan (thousands of euros) replaces it",
              _replace_budget, [{"op": "add_table", "table": "finance.plan"}, {"op": "delete", "where": "per >= 2025-04-01"}], ["S131"]),
        _step("B06", "billing.sub", "meaning_changed", "mrr now holds the monthly value its name promises",
              rewrite("billing.sub", "select * replace (round(mrr / 12, 2) as mrr) from billing.sub"),
              [{"op": "rewrite", "column": "mrr"}], ["S102", "S106", "S116"]),
        _step("B07", "support.tkt", "key_migrated", "ref holds the billing account ('A-' and acct_id) for tickets opened since 2025-04-01",
              rewrite("support.tkt", "select t.* replace (case when t.opened >= timestamp '2025-04-01' and m.acct_id is not null then 'A-' || m.acct_id else t.ref end as ref) "
                                     "from support.tkt t left join billing.id_map m on m.src = 'HLP' and m.ext = t.ref order by t.tkt_id"),
              [{"op": "rewrite", "column": "ref"}], ["S160"]),
        _step("B08", "product.use_daily", "backfilled", "au is backfilled from raw events for all workspaces",
              rewrite("product.use_daily", "select u.* replace (coalesce(u.au, e.n) as au) from product.use_daily u left join (select timezone('UTC', ts)::date d, ws_id, "
                                           "count(distinct usr_id) filter (usr_id <> 0) n from product.evt group by 1, 2) e on e.d = u.dt and e.ws_id = u.ws_id order by u.dt, u.ws_id"),
              [{"op": "rewrite", "column": "au"}], ["S154"]),
        _step("B09", "product.use_daily", "refresh_restored", "the daily job runs again; 2025-06-13 to 2025-06-30 were loaded later",
              append("product.use_daily", "select timezone('UTC', ts)::date dt, ws_id, count(*) filter (typ = 'api') api, count(distinct usr_id) filter (usr_id <> 0) au, "
                                          "sum(dur) / 1000000 sec, sum(bytes) / 1048576 gb from (select distinct on (evt_id) * from product.evt) "
                                          "where timezone('UTC', ts)::date > date '2025-06-12' group by 1, 2 order by 1, 2"),
              [{"op": "append", "rows": "2025-06-13..2025-06-30"}], ["S157"]),
        _step("B10", "sales.revenue", "table_dropped", "the deprecated table is removed", drop_table("sales.revenue"),
              [{"op": "drop_table"}], ["S057", "S058", "S059", "S060"], ["S056"]),
        _step("B11", "sales.rev_daily", "new_grain", "new column grp splits each day and country into first order and rest",
              rewrite("sales.rev_daily", "select dt, ctry, case k when 1 then rev - round(rev / 3, 2) else round(rev / 3, 2) end::decimal(14, 2) as rev, "
                                         "(case k when 1 then n_ord - 1 else 1 end)::int as n_ord, ld_ts, case k when 1 then 'O' else 'N' end as grp "
                                         "from sales.rev_daily, (values (1), (2)) v(k) where n_ord > 1 union all select *, 'O' from sales.rev_daily where n_ord = 1", False),
              [{"op": "add", "column": "grp", "type": "string"}, {"op": "rewrite", "column": "rev, n_ord"}], ["S049"]),
        _step("B12", "sales.cust", "sentinel_changed", "the open end vt becomes NULL instead of 9999-12-31",
              rewrite("sales.cust", "select * replace (nullif(vt, date '9999-12-31') as vt) from sales.cust"),
              [{"op": "rewrite", "column": "vt"}], ["S006", "S007", "S014"]),
        _step("B13", "finance.cost", "unit_from_date", "amt is in full euros from 202501 on",
              rewrite("finance.cost", "select * replace (case when per >= 202501 then amt * 1000 else amt end as amt) from finance.cost"),
              [{"op": "rewrite", "column": "amt"}], ["S124"]),
        _step("B14", "support.tkt", "meaning_changed", "ratings before 2024-10-01 were rescaled to 0-10",
              rewrite("support.tkt", "select * replace (case when csat > 0 and opened < timestamp '2024-10-01' then csat * 2 else csat end as csat) from support.tkt"),
              [{"op": "rewrite", "column": "csat"}], ["S168"]),
        _step("B15", "sales.prod", "drop_column", "tags is dropped", drop_column("sales.prod", "tags"),
              [{"op": "drop", "column": "tags"}], ["S026"]),
        _step("B16", "support.tkt", "owner_changed", "the helpdesk tables move to Customer Success", lambda tables: dict(tables),
              [{"op": "note"}], [], ["S172"]),
        _step("B17", "sales.ord", "sentinel_changed", "rep_id of web orders becomes NULL instead of -1",
              rewrite("sales.ord", "select * replace (nullif(rep_id, -1) as rep_id) from sales.ord"),
              [{"op": "rewrite", "column": "rep_id"}], ["S035"]),
        _step("B18", "finance.emp", "unit_changed", "fte becomes a fraction (1.0 = full time)",
              rewrite("finance.emp", "select * replace (fte / 100 as fte) from finance.emp", False),
              [{"op": "promote", "column": "fte", "type": "double"}, {"op": "rewrite", "column": "fte"}], ["S134"]),
        _step("B19", "finance.fx", "new_code", "pound sterling is added",
              append("finance.fx", "select dt, 'GBP' cur, round(rate * 0.9, 6) rate from finance.fx where cur = 'CHF'"),
              [{"op": "append", "rows": "cur = GBP"}], ["S121"]),
        _step("B20", "product.usr", "meaning_changed", "last_login is now filled from real logins",
              rewrite("product.usr", "select * replace ((last_login - (usr_id % 7)::int) as last_login) from product.usr"),
              [{"op": "rewrite", "column": "last_login"}], ["S140"]),
        _step("B21", "sales.ord_rpt", "refresh_restored", "the reporting copy loads again",
              append("sales.ord_rpt", "select ord_id, ord_no, cust_no, st, chan, ts as order_ts, tot, cur, timestamptz '2025-07-01 02:00:00+00' as loaded_at "
                                      "from sales.ord where ord_id not in (select ord_id from sales.ord_rpt)"),
              [{"op": "append", "rows": "orders since 2025-05-18"}], ["S061"]),
        _step("B22", "sales.ord_ln", "backfilled", "disc of the orders until 2024-12-31 was converted to percent",
              rewrite("sales.ord_ln", "select l.* replace (case when o.ord_dt < date '2025-01-01' then round(l.disc * 100, 4) else l.disc end as disc) "
                                      "from sales.ord_ln l join sales.ord o using (ord_id) order by l.ord_id, l.ln"),
              [{"op": "rewrite", "column": "disc"}], ["S046", "S047"]),
        _step("B23", "sales.ord_promo", "duplicate_grain", "a re-load delivered the promotions of May 2025 a second time",
              append("sales.ord_promo", "select p.* from sales.ord_promo p join sales.ord o using (ord_id) where o.ord_dt between date '2025-05-01' and date '2025-05-31'"),
              [{"op": "append", "rows": "duplicates of May 2025"}], ["S066"]),
        _step("B24", "finance.rev_rec", "late_rows", "fast close: goods of June 2025 are posted on 2025-06-30 already",
              append("finance.rev_rec", "select date '2025-06-01' per, i.acct_id, 'HW' svc, i.amt - i.vat amt, 'STD' doc, date '2025-06-30' book_dt from billing.inv i "
                                        "join sales.ord o using (ord_id) join billing.acct a using (acct_id) where i.typ = 'I' and a.typ <> 'T' and o.ord_dt >= date '2025-06-01'"),
              [{"op": "append", "rows": "per = 2025-06-01, svc = HW"}], ["S113", "S114"]),
    ]


def _harmless() -> list[dict]:
    """Steps that change data or schema and leave every statement true."""
    return [
        _step("N01", "product.evt", "late_arrival", "late mobile events of 2025-06-28 arrive",
              append("product.evt", "select * replace ('L' || substr(evt_id, 2) as evt_id, ts + interval 20 second as ts, timestamptz '2025-07-01 05:00:00+00' as ing_ts) "
                                    "from product.evt where src = 'M' and ts between timestamptz '2025-06-28 00:00:00+00' and timestamptz '2025-06-28 23:00:00+00'"),
              [{"op": "append", "rows": "late events"}]),
        _step("N02", "sales.ord", "add_column", "a nullable free-text column note is added", add_column("sales.ord", "note", pa.string()),
              [{"op": "add", "column": "note", "type": "string"}]),
        _step("N03", "sales.ord_ln", "promote", "qty is promoted from int to long", change_type("sales.ord_ln", "qty", pa.int64()),
              [{"op": "promote", "column": "qty", "type": "long"}]),
        _step("N04", "billing.inv", "compaction", "the table is rewritten in another order",
              lambda tables: {**tables, "billing.inv": tables["billing.inv"].sort_by([("acct_id", "ascending"), ("inv_id", "ascending")])},
              [{"op": "rewrite", "column": None}]),
        _step("N05", "finance.emp", "values_change", "five full-time employees go to half time",
              rewrite("finance.emp", "select * replace (case when fte = (select max(fte) from finance.emp) and emp_id between 110 and 114 then fte / 2 else fte end as fte) from finance.emp"),
              [{"op": "rewrite", "column": "fte"}]),
        _step("N06", "sales.prod", "append", "three new sensors enter the catalogue",
              append("sales.prod", "select * replace ('SN-9' || substr(sku, 4) as sku, nm || ' b' as nm) from sales.prod where cat = 'SN' and eol is null order by sku limit 3"),
              [{"op": "append", "rows": "3 products"}]),
        _step("N07", "finance.cc", "column_order", "columns are reordered",
              lambda tables: {**tables, "finance.cc": tables["finance.cc"].select(["cc", "dept", "nm", "parent"])}, [{"op": "rewrite", "column": None}]),
        _step("N08", "sales.prod", "values_change", "list prices rise by 4 %",
              rewrite("sales.prod", "select * replace (round(lst_px * 1.04, 2) as lst_px) from sales.prod"), [{"op": "rewrite", "column": "lst_px"}]),
        _step("N09", "support.tkt", "values_change", "waiting tickets are solved and rated by nobody",
              rewrite("support.tkt", "select * replace (case when st = 'W' and tkt_id % 2 = 0 then 'S' else st end as st) from support.tkt"),
              [{"op": "rewrite", "column": "st"}]),
        _step("N10", "product.usr", "append", "twenty new members are invited",
              append("product.usr", "select * replace (usr_id + 500000 as usr_id, 2 as role, timestamptz '2025-06-30 09:00:00+00' as created_ts, null::timestamptz as del_ts) from product.usr order by usr_id limit 20"),
              [{"op": "append", "rows": "20 users"}]),
    ]


def evolve(tables: Tables) -> list[dict]:
    """All steps in the order of application: breaking and harmless ones interleaved."""
    breaking, harmless, out = _breaking(), _harmless(), []
    for i, step in enumerate(breaking):
        out.append(step)
        if i % 2 and i // 2 < len(harmless):
            out.append(harmless[i // 2])
    return [s for s in out if s["table"] in tables]
