select {first_values}, f.prev_seq
from ({first_lines}) f
where f.was and ({was_meant}) and not exists (select from {table} t where {same_key})
