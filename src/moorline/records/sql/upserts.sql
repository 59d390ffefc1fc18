select
    {row_values}, t.moor_seq, ({is_meant}), coalesce(f.was and ({was_meant}), false), f.prev_seq, {first_scopes}
    row_to_json(r)::text
from {table} t
cross join lateral (select {json_columns}) r
left join ({first_lines}) f on {same_key}
where t.moor_xid <> '0' and ({row_behind}) and (({is_meant}) or f.was and ({was_meant}))
