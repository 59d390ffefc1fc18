-- A fresh catalog has two rows: who is on the machine may do everything, and who proved something may do as it likes
-- with what is its own, which a row at `/%u` says in one word. It is at those places where six rows were; a catalog
-- that was in use keeps its own rows, which somebody has looked at.
with fresh as materialized (
    select true as is_so from moorline.access_state
    where not is_upgraded
      and not exists (select from moorline.node)
      and not exists (select from moorline.access_user)
), gone as (
    delete from moorline.access_grant g using fresh
    where g.made_by = 'first start' and g.subject = '@authenticated'
    returning g.path, g.subject
), told as (
    select count(moorline.access_changed('grant', gone.path, gone.subject, true, 10000)) as rows from gone
)
insert into moorline.access_grant (path, subject, grants, denies, made_by, version)
select '/%u', '@authenticated', 'slwpd', '', 'first start',
       moorline.access_changed('grant', '/%u', '@authenticated', false, 10000)
from told where told.rows > 0;

-- By whose rights a table is published to a topic: whoever proves nothing has others on the node's machine. Those that
-- are there were made where most operators work.
alter table moorline.publication add column is_local boolean not null default true;

-- How many sessions somebody has is asked before another one is made.
create index session_by_owner on moorline.session (owner);
