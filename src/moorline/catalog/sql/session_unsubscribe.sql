select moorline.unsubscribe($1, $2, $3)
