-- Claimed, and not deleted: one that a node did not come to publish is due again.
with due as (
    select w.name from moorline.mqtt_will w
    where w.due_at <= clock_timestamp()
    order by w.name limit $1 for update of w skip locked
)
update moorline.mqtt_will w set node = $2, due_at = clock_timestamp() + $3 * interval '1 millisecond'
from due where w.name = due.name
returning w.name, w.principal, w.proof, w.is_local, w.will
