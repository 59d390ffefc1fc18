select moorline.remove_session($1)
