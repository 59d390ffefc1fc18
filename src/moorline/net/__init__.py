"""Room: net. The only sockets, TLS and clock; the driver that runs machines over them."""
