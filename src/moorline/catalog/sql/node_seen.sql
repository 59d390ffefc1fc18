update moorline.node set seen_at = now() where name = $1 returning true;
