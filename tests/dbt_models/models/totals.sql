{{ config(materialized='incremental', incremental_strategy='merge', unique_key='user_id') }}
SELECT user_id, sum(amount) AS total, max(day) AS last_day
FROM {{ source('raw', 'purchases') }}
{% if is_incremental() %}
WHERE user_id IN (
  SELECT user_id FROM {{ source('raw', 'purchases') }}
  WHERE day > (SELECT max(last_day) FROM {{ this }})
)
{% endif %}
GROUP BY user_id
