select number, epoch, is_disabled from moorline.service where number = any ($1::integer[])
