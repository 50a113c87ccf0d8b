{{ config(materialized='table', partition_by=['last_day']) }}
SELECT user_id, total, last_day FROM {{ ref('totals') }} WHERE total >= 10
