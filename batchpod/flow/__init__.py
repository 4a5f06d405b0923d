"""A volume's pages on their way: in, over the GPU, out; and the ledger in which each has its place."""
