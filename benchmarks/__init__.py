"""What calls cost; `make bench` runs it."""
