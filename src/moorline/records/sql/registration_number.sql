select coalesce(max(n), 0) + 1 from moorline_records.registration;
