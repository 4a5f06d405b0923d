"""`python -m supervisor` is `batchpod-debug`."""

import sys

from supervisor.debug.cli import main

sys.exit(main())
