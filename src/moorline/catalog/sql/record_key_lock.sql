-- One node at a time draws a key: the others find it.
lock table moorline.record_key in share row exclusive mode
