delete from moorline_records.log_{n} where n <= {upto};
