"""Room: client. The library that people import: `moorline.connect`."""
