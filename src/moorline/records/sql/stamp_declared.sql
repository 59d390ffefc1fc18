declare
    line moorline_records.log_{n};
    came moorline_records.log_{n};
