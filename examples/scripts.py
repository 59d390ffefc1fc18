"""Without `await`: for scripts and notebooks."""

import moorline.sync

with moorline.sync.connect("tcp://127.0.0.1:7411") as moor:
    moor.publish_all(moorline.record("rain/bergen", b"%d mm" % number) for number in range(1, 4))
    for message in moor.subscribe("rain/#", start="beginning").acking():
        print(message.topic, message.body.decode())
        if message.body == b"3 mm":
            break
