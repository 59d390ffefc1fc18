"""Room: core/values. Live values: what a publisher gives out, and how a subscriber stays subscribed."""
