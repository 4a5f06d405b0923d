"""What every model has: a device's name, metadata, and `_predict`, which a call goes to."""

from typing import Any


class BaseModel:
    def __init__(self, device: str | None = None) -> None:
        self.metadata: dict[str, Any] = {"model_class": type(self).__name__}
        self.device = device or "cpu"

    def predict(self, images: list[Any], **kwargs: Any) -> list[Any]:
        return self._predict(images, **kwargs)

    def __call__(self, images: list[Any], **kwargs: Any) -> list[Any]:
        return self.predict(images, **kwargs)

    def _predict(self, images: list[Any], **kwargs: Any) -> list[Any]:
        raise NotImplementedError
