-- Locked in order: two that renew the same groups must not wait for each other. A lease that is over is renewed too
-- as long as nobody has claimed the group: the epoch says so.
with held as (
    select r.number
    from moorline.reader r
    join unnest($1::bigint[], $2::bigint[]) as given (number, epoch)
        on given.number = r.number and given.epoch = r.epoch
    where r.holder is not null
    order by r.number for no key update of r
)
update moorline.reader r
set lease_until = clock_timestamp() + $3::bigint * interval '1 millisecond'
from held where r.number = held.number
returning r.number
