select home, hash_high from moorline.association where service = $1 and queue = $2
