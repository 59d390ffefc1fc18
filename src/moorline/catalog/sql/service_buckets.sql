select bucket, count, hash_low from moorline.service_bucket where service = $1 and home = $2 and count > 0
