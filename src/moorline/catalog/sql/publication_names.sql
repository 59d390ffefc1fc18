-- For whoever shows them, beside a node.
select name, topic, home, problem from moorline.publication order by name
