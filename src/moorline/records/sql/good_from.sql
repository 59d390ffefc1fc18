update moorline_records.registration
set good_from = greatest(good_from, '{good_from}'::xid8)
where n = {n};
