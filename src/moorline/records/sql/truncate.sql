create trigger zzz_moorline_truncate after truncate on {leaf}
for each statement execute function moorline_records.truncate_{n}();
alter table {leaf} enable always trigger zzz_moorline_truncate;
