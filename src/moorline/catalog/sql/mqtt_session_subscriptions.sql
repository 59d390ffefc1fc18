update moorline.mqtt_session m set subscriptions = $3
from moorline.session s
where m.name = $1 and s.name = $1 and s.epoch = $2
returning m.name
