"""The uploader: the only process with the results bucket's credentials."""
