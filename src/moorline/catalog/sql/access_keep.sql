update moorline.access_state set is_kept = true
