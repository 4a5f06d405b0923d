"""The fetcher: reads the source, downloads pages, decodes them into the pixel arena."""
