delete from moorline_records.log_{n};
delete from moorline_records.moment where n = {n};
