select {row_told}
from {table} t
cross join lateral (select {json_columns}) r
left join first f on {same_key}
where t.{made} <> '0' and ({made_behind}) and ({row_upto}) and (({is_meant}) or f.was and ({was_meant}))
