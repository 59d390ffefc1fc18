update moorline.session set expiry_s = $3 where name = $1 and epoch = $2
