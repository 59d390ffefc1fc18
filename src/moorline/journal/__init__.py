"""Room: journal. The only room that touches a disk; everything durable goes through `disk`."""
