select (select count(*) from moorline.access_grant) as grants,
       (select count(*) from moorline.access_user) as users,
       (select count(*) from moorline.access_token) as tokens,
       (select count(*) from moorline.access_member) as members,
       (select count(*) from moorline.access_quota) as quotas,
       (select count(*) from moorline.access_owner) as owners
