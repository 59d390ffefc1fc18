-- Whether a session is there already; and if not, how many its owner has, counted as far as matters.
select known.is_there,
       case when known.is_there then 0 else (
           select count(*) from (select from moorline.session where owner = $2 limit $3) as counted
       ) end as held
from (select exists (select from moorline.session where name = $1) as is_there) as known
