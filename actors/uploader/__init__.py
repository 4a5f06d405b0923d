"""The uploader: the only process that talks to the results bucket."""
