"""The models that a pipeline file can name."""

from typing import Any

from htrflow.models.scripted import MODELS


def available_models() -> list[Any]:
    return list(MODELS)


def get_model_by_name(name: str) -> Any:
    for model in available_models():
        if model.__name__.lower() == name.lower():
            return model
    raise NotImplementedError(
        f"There is no model {name}; there are {', '.join(m.__name__ for m in available_models())}."
    )
