select moorline.remove_expired_sessions($1)
