-- One registration at a time: its number and name are its own then.
lock table moorline_records.registration in share row exclusive mode;
