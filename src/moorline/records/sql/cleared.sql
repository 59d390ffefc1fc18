update moorline_records.registration
set cleared_below = greatest(cleared_below, '{below}'::xid8)
where n = {n};
