select {row_values}, t.moor_seq, told.text, told.whole_bytes
from {table} t
{row_text}where {is_asked}
