grant select, delete on moorline_records.log_{n} to {role};
grant select, update on sequence moorline_records.log_limit_{n} to {role};
grant select, insert, delete on moorline_records.moment to {role};
