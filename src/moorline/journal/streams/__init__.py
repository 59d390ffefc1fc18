"""Room: journal/streams. The files of streams: shards, their generations, and the frames in them."""
