-- Waits for whoever is taking it. No row: it was forgotten, and nobody knows any more.
delete from moorline.operation where ticket = $1 returning is_done
