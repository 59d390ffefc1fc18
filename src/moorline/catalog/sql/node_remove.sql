delete from moorline.node where home = $1
