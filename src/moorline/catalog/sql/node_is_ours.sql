select exists (select from moorline.node where id = $1 and incarnation = $2)
