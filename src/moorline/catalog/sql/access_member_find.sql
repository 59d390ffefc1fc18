select exists (select from moorline.access_member where name = $1 and member = $2) as is_member,
       (select count(*) from moorline.access_member where member = $2) as groups
