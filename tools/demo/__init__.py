"""What `make demo` shows: the product's idea, small, on this machine alone."""
