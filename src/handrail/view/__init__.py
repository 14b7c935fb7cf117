"""Pages of stored sessions, to look at: one file without a network, or served live on this machine."""
