update moorline.reader set holder = null, lease_until = null where number = $1 and epoch = $2
