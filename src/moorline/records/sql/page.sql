-- The rows behind a key, in the order of keys.
select {key_values}, t.moor_seq, row_to_json(r)::text
from {table} t
cross join lateral (select {json_columns}) r
where ({is_meant}) and ({is_after})
order by {key_names}
limit {rows_max}
