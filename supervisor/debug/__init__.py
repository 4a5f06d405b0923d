"""Looking into a running supervisor, and telling it things: the socket's server, its client, and what people see.

The supervising process imports `protocol`, `address`, `server`, `commands`, `stacks` and `views` only; tables and
screens are the client's.
"""
