select coalesce(max(number), 0) from moorline.migration;
