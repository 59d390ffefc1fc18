-- Whether rows of the upgrade are there that nobody has said yes to.
select s.is_upgraded, s.is_kept,
       (select count(*) from moorline.access_grant where made_by = 'upgrade') as rows
from moorline.access_state s
