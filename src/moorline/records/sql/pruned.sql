update moorline_records.registration
set pruned_below = '{below}', pruned_at = '{at}'
where n = {n};
