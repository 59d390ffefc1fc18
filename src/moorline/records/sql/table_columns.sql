-- Constants as defaults: the rows are not written anew.
alter table {table}
    add column moor_seq bigint not null default 0,
    add column moor_xid xid8 not null default '0'{made_column};

create sequence moorline_records.seq_{n};
