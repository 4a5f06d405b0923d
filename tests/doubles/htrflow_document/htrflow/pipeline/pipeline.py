"""The pipeline: steps from a YAML file, run on one document; several documents may run at once."""

from typing import Any

import yaml

from htrflow import progress
from htrflow.pipeline.steps import PipelineStep, init_step


class Pipeline:
    def __init__(self, steps: list[PipelineStep]) -> None:
        self.steps = steps

    @classmethod
    def from_config(cls, path: str) -> "Pipeline":
        with open(path, encoding="utf-8") as file:
            return cls([init_step(step) for step in yaml.safe_load(file)["steps"]])

    def run(self, document: Any) -> Any:
        for step in self.steps:
            progress.step(document, step=step)
            document = step.run(document)
        progress.done(document)
        return document
