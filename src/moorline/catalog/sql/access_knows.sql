select exists (select from moorline.access_change where version = $1 and mark = $2::text::uuid)
