-- Whoever deletes a row publishes it.
with due as (
    select w.name from moorline.mqtt_will w
    where w.due_at <= clock_timestamp()
    order by w.name limit $1 for update of w skip locked
)
delete from moorline.mqtt_will w using due where w.name = due.name
returning w.name, w.principal, w.proof, w.is_local, w.will
