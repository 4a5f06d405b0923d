"""A stand-in with the shape of htrflow's document API: threads, batch queue, progress registries,
serializers.

Written for the tests, light (no torch), with models that do what a pipeline file tells them
(`models/scripted.py`). It carries the real one's habits that matter here: a model's exception kills its
thread and the page waits for ever, registries that grow, a display on stdout, templates that escape half
and write word boxes without their region's offset. It ships no schemas. `HTRFLOW_DOUBLE_IMPORT_S` makes its
import take that long.
"""

import os
import time

time.sleep(float(os.environ.get("HTRFLOW_DOUBLE_IMPORT_S", "0")))
