-- A sequence goes on behind that number.
select setval(format('moorline.%I', $1::text)::regclass, $2::bigint)
