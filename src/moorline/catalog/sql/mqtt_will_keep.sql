insert into moorline.mqtt_will as kept (name, node, principal, proof, is_local, will, delay_s)
values ($1, $2, $3, $4, $5, $6, $7)
on conflict (name) do update set
    node = excluded.node,
    principal = excluded.principal,
    proof = excluded.proof,
    is_local = excluded.is_local,
    will = excluded.will,
    delay_s = excluded.delay_s,
    due_at = null
