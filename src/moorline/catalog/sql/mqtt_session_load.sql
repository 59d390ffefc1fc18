-- Made with the session: from here on it is only changed.
with made as (
    insert into moorline.mqtt_session (name)
    select s.name from moorline.session s where s.name = $1
    on conflict (name) do nothing
    returning subscriptions, exchanges
)
select subscriptions, exchanges from made
union all
select subscriptions, exchanges from moorline.mqtt_session where name = $1
