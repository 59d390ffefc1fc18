select exists (select from moorline.access_token where owner = $1 and label = $2)
