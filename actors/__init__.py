"""What each child process does (fetcher, gpu, uploader) and the messages they exchange with their supervisor."""
