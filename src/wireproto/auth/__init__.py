"""Authentication: one mechanism a file, sans-IO, and where secrets come from."""
