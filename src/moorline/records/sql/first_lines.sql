-- What each key was at the snapshot: its first line behind it, if the row before that line was not made behind it too.
select distinct on ({key_names}) {log_names}, l.prev_seq, not ({prev_behind}) as was
from moorline_records.log_{n} l
where l.kind <> 'T' and ({line_behind}) and ({line_meant})
order by {key_names}, l.n
