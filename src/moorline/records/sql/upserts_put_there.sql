select {row_told}
from {table} t
{row_text}left join first f on {same_key}
where t.{made} <> '0' and ({made_behind}) and ({row_upto}) and (({is_meant}) or f.was and ({was_meant}))
