-- The rows behind a key, in the order of keys.
select {key_values}, t.moor_seq, told.text, told.whole_bytes
from {table} t
{row_text}where ({is_meant}) and ({is_after})
order by {key_names}
limit {rows_max}
