-- A process that lost its identity writes nothing; its row stays as it is until we are done.
with ours as materialized (
    select from moorline.node where id = $7 and incarnation = $8 for key share
)
select moorline.write_home_exceptions($1, $2, $3, $4, $5, $6)
from (select where $7::bytea is null or exists (select from ours)) as allowed
