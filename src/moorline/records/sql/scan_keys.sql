select {key_values}, t.moor_seq from {table} t where {is_meant}
