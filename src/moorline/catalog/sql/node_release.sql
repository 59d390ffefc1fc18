update moorline.node set lease_until = null where id = $1 and incarnation = $2
