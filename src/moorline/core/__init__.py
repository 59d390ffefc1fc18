"""Room: core. Machines without clock, socket, disk or chance: event and time in, effects out."""
