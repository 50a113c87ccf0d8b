SELECT
  event_ts,
  timestampadd(MINUTE, dep_delay, event_ts) AS departed_at,
  CASE
    WHEN dep_time IS NULL THEN 'cancelled' WHEN air_time IS NULL THEN 'diverted' ELSE 'flown'
  END AS status,
  carrier,
  flight,
  nullif(trim(tailnum), '') AS tailnum,
  origin,
  dest,
  dep_delay AS departure_delay_minutes,
  arr_delay AS arrival_delay_minutes,
  air_time AS air_minutes,
  distance AS distance_miles
FROM raw.flights
