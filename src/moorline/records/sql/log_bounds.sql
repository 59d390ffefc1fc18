select
    r.log_limit,
    r.log_rows_max,
    (select last_value from moorline_records.log_limit_{n}) as limit_now,
    coalesce((select last_value from moorline_records.log_n_{n} where is_called), 0) as log_n,
    (select min(n) from moorline_records.log_{n}) as first_n
from moorline_records.registration r
where r.n = {n};
