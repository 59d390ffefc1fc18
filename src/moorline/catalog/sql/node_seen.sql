update moorline.node set seen_at = now() where name = $1 and id = coalesce($2, id) returning true;
