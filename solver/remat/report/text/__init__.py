"""A schedule, a solve or a sweep in words and tables."""
