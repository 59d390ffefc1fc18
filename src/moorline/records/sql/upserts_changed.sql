select {row_told}
from first f
cross join lateral (
    select * from {table} t where {same_key} and not ({made_behind}) offset 0
) t
{row_text}where ({is_meant}) or f.was and ({was_meant})
