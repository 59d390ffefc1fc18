select subject, kind, amount from moorline.access_quota where version > $1
