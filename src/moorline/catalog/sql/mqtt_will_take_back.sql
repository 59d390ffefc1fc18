-- The client is back, here. That of a connection which this one takes over is published, unless it had a delay
-- and the session goes on ($2: it does not); one that waited for its delay is taken away.
with found as (
    select w.name, $2 or w.due_at <= clock_timestamp() or (w.due_at is null and w.delay_s = 0) as is_due
    from moorline.mqtt_will w
    where w.name = $1 and (w.node <> $3 or $4)
    for update of w
), ended as (
    update moorline.mqtt_will w set due_at = clock_timestamp(), node = $3
    from found where w.name = found.name and found.is_due
    returning w.name
), gone as (
    delete from moorline.mqtt_will w using found where w.name = found.name and not found.is_due
)
select count(*) from ended
