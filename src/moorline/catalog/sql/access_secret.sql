select secret from moorline.access_state
