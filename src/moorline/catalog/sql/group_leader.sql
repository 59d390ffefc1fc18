select holder, epoch from moorline.reader where number = $1 and lease_until > clock_timestamp()
