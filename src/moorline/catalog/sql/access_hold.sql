-- Holds the version: changes are one behind the other. A process that lost its identity changes nothing.
with ours as materialized (
    select from moorline.node where id = $1 and incarnation = $2 for key share
)
select version from moorline.access_state
where $1::bytea is null or exists (select from ours)
for update
