SELECT
  to_date(event_ts) AS day,
  carrier,
  origin,
  count(*) AS flights,
  count_if(status = 'cancelled') AS cancelled,
  count_if(departure_delay_minutes > 15) AS late,
  avg(departure_delay_minutes) AS departure_delay_avg_minutes,
  sum(distance_miles) AS distance_miles
FROM clean.flights
GROUP BY to_date(event_ts), carrier, origin
