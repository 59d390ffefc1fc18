select known_as, principal from moorline.access_owner where version > $1
