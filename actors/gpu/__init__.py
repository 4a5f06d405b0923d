"""Transcribes pages: one long-lived htrflow pipeline in a process without credentials.

`pipeline_file` is pure and imports no torch, so that the check command and the uploader can use it too.
"""
