select
    r.log_limit,
    r.log_rows_max,
    (select last_value from moorline_records.log_limit_{n}) as limit_now,
    coalesce((select last_value from moorline_records.seq_{n} where is_called), 0) as log_n,
    -- The oldest, or nearly: it says how far the limit may move.
    (select n from moorline_records.log_{n} order by xid, n limit 1) as first_n
from moorline_records.registration r
where r.n = {n};
