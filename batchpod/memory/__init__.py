"""The container's memory: looked at once a second, given back step by step."""
