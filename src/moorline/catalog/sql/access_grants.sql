select path, subject, grants, denies from moorline.access_grant where version > $1
