-- A process that lost its identity opens nothing; its row stays as it is until we are done.
with ours as materialized (
    select from moorline.node where id = $5 and incarnation = $6 for key share
)
select opened.*
from (select where $5::bytea is null or exists (select from ours)) as allowed
cross join lateral moorline.open_session($1, $2, $3, $4) as opened
