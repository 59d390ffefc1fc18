drop table moorline_records.registration;
drop schema moorline_records;
