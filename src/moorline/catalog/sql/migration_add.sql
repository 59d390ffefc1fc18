insert into moorline.migration (number, name, checksum) values ($1, $2, $3);
