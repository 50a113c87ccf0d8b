SELECT
  tailnum,
  count(*) AS flights,
  count_if(status = 'flown') AS flown,
  min(event_ts) AS first_seen,
  max(event_ts) AS last_seen,
  listagg(DISTINCT carrier, ',') WITHIN GROUP (ORDER BY carrier) AS carriers,
  sum(CASE WHEN status = 'flown' THEN distance_miles END) AS flown_miles,
  sum(air_minutes) AS air_minutes
FROM clean.flights
WHERE tailnum IS NOT NULL
GROUP BY tailnum
