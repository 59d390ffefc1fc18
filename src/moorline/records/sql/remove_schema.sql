drop table moorline_records.registration, moorline_records.moment;
drop schema moorline_records;
