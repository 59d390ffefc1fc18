select queue, service from moorline.association where queue = any ($1)
