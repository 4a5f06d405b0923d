"""How child processes live and die: spawn, queues, arena, heartbeats, restarts, event loop, debug socket.

Knows nothing of pages, IIIF or htrflow, and could be lifted out of this project and reused.
"""
