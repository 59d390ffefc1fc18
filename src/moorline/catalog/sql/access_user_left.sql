select (select count(*) from moorline.access_member where member = $1) as memberships,
       (select count(*) from moorline.access_grant where subject = $1) as grants,
       (select count(*) from moorline.access_quota where subject = $1) as quotas
