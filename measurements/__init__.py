"""Scripts that made a record once: `README.md` says which, and how each is made again."""
