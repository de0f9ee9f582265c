"""Services that a training script reports to, switched off by their own variables."""

from __future__ import annotations

import os

#: The variable, its value, and the name of the service.
_OFF = (
    ("WANDB_MODE", "disabled", "wandb"),
    ("COMET_MODE", "disabled", "comet"),
    ("COMET_START_MODE", "disabled", "comet"),
    ("CLEARML_OFFLINE_MODE", "1", "clearml"),
    ("NEPTUNE_MODE", "debug", "neptune"),
    ("SWANLAB_MODE", "disabled", "swanlab"),
    ("MLFLOW_TRACKING_URI", "file:///dev/null", "mlflow"),
    ("DISABLE_MLFLOW_INTEGRATION", "TRUE", "mlflow"),
    ("HF_HUB_DISABLE_TELEMETRY", "1", "huggingface_hub"),
    ("HF_HUB_DISABLE_PROGRESS_BARS", "1", "huggingface_hub"),
    ("TOKENIZERS_PARALLELISM", "false", "tokenizers"),
)

#: Modules whose import says that a program uses the service.
SERVICES = {"wandb": "wandb", "comet_ml": "comet", "clearml": "clearml", "neptune": "neptune",
            "swanlab": "swanlab", "mlflow": "mlflow"}  # fmt: skip


def switch_off() -> None:
    """Set the variables for this process and those that it starts."""
    for name, value, _ in _OFF:
        if name != "TOKENIZERS_PARALLELISM" or name not in os.environ:
            os.environ[name] = value
