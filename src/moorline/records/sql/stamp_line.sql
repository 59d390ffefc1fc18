if tg_op operator(pg_catalog.=) 'UPDATE' then
    -- The line of it, here and not in a trigger of its own behind the update: a call of one costs as much as the line.
    -- What is read of the row by name is read apart: where a column was renamed, or is another one by now, no writer
    -- fails. The line is then a T, as of a truncation: all clients are synced anew. The block writes nothing, so that
    -- it takes no number of a transaction.
    begin
        line.kind := case when {is_same_key} then 'U' else 'D' end;
        {line_values}
        line.prev_seq := old.moor_seq;
        line.prev_xid := old.moor_made;
        if line.kind operator(pg_catalog.=) 'D' then
            -- The row keeps who put it there, so that its new key has to be told by a line.
            came.kind := 'K';
            {came_values}
        end if;
    exception when others then
        line := null;
        came := null;
        line.kind := 'T';
    end;
    if new.moor_seq operator(pg_catalog.<=) {log_limit} then
        insert into moorline_records.log_{n} (n, xid, kind, {log_names}, prev_seq, prev_xid)
        values (new.moor_seq, new.moor_xid, line.kind, {line_names}, line.prev_seq, line.prev_xid);
    end if;
    if came.kind is not null then
        came.n := pg_catalog.nextval('moorline_records.seq_{n}'::pg_catalog.regclass);
        if came.n operator(pg_catalog.<=) {log_limit} then
            insert into moorline_records.log_{n} (n, xid, kind, {key_names}, prev_xid)
            values (came.n, new.moor_xid, came.kind, {came_names}, new.moor_xid);
        end if;
    end if;
end if;
