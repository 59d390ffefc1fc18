-- The homes of all nodes that are of this cluster, whether they run or not.
select home from moorline.node
