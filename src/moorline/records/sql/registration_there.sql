select to_regclass('moorline_records.registration') is not null;
