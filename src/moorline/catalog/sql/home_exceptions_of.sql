-- Of many queues those that have an exception, each with the number of its home.
select e.queue, e.home from moorline.home_exception e where e.queue = any ($1::bytea[])
