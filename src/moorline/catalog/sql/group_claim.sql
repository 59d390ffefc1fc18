-- Of several that claim at once one changes the row. The others wait for it, look at the row again, and find it led.
-- The node that leads already gets a new epoch: it has lost its Leader, and the lost one must not come back.
-- A process that lost its identity claims nothing; its row stays as it is until we are done.
with ours as materialized (
    select from moorline.node where id = $4 and incarnation = $5 for key share
)
update moorline.reader set
    epoch = nextval('moorline.epoch'),
    holder = $2,
    lease_until = clock_timestamp() + $3::bigint * interval '1 millisecond'
where number = $1 and shared_group is not null
  and (holder is null or holder = $2 or lease_until <= clock_timestamp())
  and ($4::bytea is null or exists (select from ours))
returning epoch
