{{ config(materialized='view') }}
SELECT user_id, total * 2 AS twice FROM {{ ref('best') }}
