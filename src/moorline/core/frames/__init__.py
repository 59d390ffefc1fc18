"""Room: core/frames. Stored messages as bytes: the layout of a frame, and many frames at once."""
