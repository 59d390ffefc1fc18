-- Excludes changes of associations, and another recompute, until the end of the transaction.
lock table moorline.association in share row exclusive mode
