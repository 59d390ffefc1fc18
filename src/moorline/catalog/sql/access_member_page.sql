select name, member from moorline.access_member
where ($1 = '' or name = $1) and (name collate "C", member collate "C") > ($2, $3)
order by name collate "C", member collate "C"
limit $4
