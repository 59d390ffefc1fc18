-- For whoever shows them, beside a node.
select name, topic, home, owner, problem from moorline.publication order by name
