"""`python -m batchpod` is `batchpod`."""

import sys

from batchpod.cli import main

sys.exit(main())
