select {key_values} from {table} t where {is_asked}
