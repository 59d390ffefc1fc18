-- Rises over all publications: one that is made anew never has a number from before.
select nextval('moorline.epoch')
