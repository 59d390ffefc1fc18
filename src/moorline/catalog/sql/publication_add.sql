-- One that is there stays as it is. A process that lost its identity adds nothing.
with ours as materialized (
    select from moorline.node where id = $5 and incarnation = $6 for key share
)
insert into moorline.publication (name, topic, home, owner, is_local)
select $1, $2, $3, $4, $7 where $5::bytea is null or exists (select from ours)
on conflict (name) do nothing
returning number
