-- All high hashes of a slice of a part of the service, as bytes in one piece: for building a sketch.
select coalesce(string_agg(int8send(hash_high), ''), '') as highs
from moorline.association where service = $1 and home = $2 and hash_high between $3 and $4
