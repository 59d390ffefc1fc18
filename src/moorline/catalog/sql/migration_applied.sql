select number, name, checksum from moorline.migration order by number;
