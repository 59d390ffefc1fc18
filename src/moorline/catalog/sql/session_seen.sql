-- Locked in order: two that say it of the same sessions must not wait for each other.
with held as (
    select s.name
    from moorline.session s
    join unnest($1::text[], $2::bigint[]) as given (name, epoch)
        on given.name = s.name and given.epoch = s.epoch
    order by s.name for no key update of s
)
update moorline.session s set seen_at = clock_timestamp()
from held where s.name = held.name
returning s.name
