-- Wills of connections whose node died: due behind their delay from now on.
update moorline.mqtt_will w set due_at = clock_timestamp() + w.delay_s * interval '1 second'
where w.due_at is null and (w.node = $1 or not exists (
    select from moorline.session s
    where s.name = w.name and s.seen_at > clock_timestamp() - $2 * interval '1 second'
)) and (w.node = $1 or w.node <> $3)
