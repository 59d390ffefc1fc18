update moorline.publication set problem = $2 where number = $1 and problem <> $2
