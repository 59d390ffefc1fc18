alter table {table} enable always trigger {trigger};
