select subject, kind, amount from moorline.access_quota
where ($1 = '' or subject = $1) and (subject collate "C", kind collate "C") > ($2, $3)
order by subject collate "C", kind collate "C"
limit $4
