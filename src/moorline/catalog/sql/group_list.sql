-- A page of them, behind the one that is named; a limit of null is all.
select *
from moorline.group_state
where $1::text is null or (mode, name, filter) > ($1, $2, $3)
order by mode, name, filter
limit $4
