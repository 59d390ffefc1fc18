-- Locked in order: two that write the same sessions must not wait for each other.
with held as (
    select m.name, given.exchanges
    from moorline.mqtt_session m
    join unnest($1::text[], $2::bigint[], $3::bytea[]) as given (name, epoch, exchanges) on given.name = m.name
    join moorline.session s on s.name = m.name and s.epoch = given.epoch
    order by m.name for no key update of m
)
update moorline.mqtt_session m set exchanges = held.exchanges
from held where m.name = held.name
returning m.name
