select label from moorline.access_token where owner = $1
