select kind, first, second from moorline.access_change where version > $1 and is_removal order by version
