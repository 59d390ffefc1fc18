-- A dump may be older than its sequence, or newer: no number is given twice.
select setval(
    'moorline_records.seq_{n}',
    greatest((select last_value from moorline_records.seq_{n}), (select max(moor_seq) from {table}), 1)
);
