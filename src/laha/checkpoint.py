"""A complete training checkpoint in one safetensors file: weights, optimizer, random states and position."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from laha.errors import ModelError
from laha.storage import atomic_file, read_tensors, write_tensors


@dataclass
class TrainingState:
    """Where training is; batches and sampled labels follow from the seed, the epoch and the step alone."""

    epoch: int = 0  # epochs finished
    step: int = 0  # steps of the current epoch finished
    seconds: float = 0.0
    done: float = 0.0  # of the schedule, where it is laid over a time
    best_epoch: int = 0
    best_score: float = -1.0
    averaged: int = 0  # epochs in the average
    log_bytes: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)
    average: dict[str, Tensor] = field(default_factory=dict)


class Checkpoint:
    """Saves and restores everything that the rest of a training run depends on."""

    def __init__(self, path: Path):
        self.path = path

    def exists(self) -> bool:
        """Say whether there is something to resume from."""
        return self.path.is_file()

    def save(
        self,
        state: TrainingState,
        parameters: dict[str, nn.Parameter],
        optimizer: torch.optim.Optimizer,
        device: torch.device,
    ) -> None:
        """Write the checkpoint in place of the last one, atomically."""
        tensors: dict[str, Tensor] = {f"weights/{name}": value.detach() for name, value in parameters.items()}
        tensors |= {f"best/{name}": value for name, value in state.best.items()}
        tensors |= {f"average/{name}": value for name, value in state.average.items()}
        for name, parameter in parameters.items():
            for key, value in optimizer.state.get(parameter, {}).items():
                tensors[f"optimizer/{key}/{name}"] = torch.as_tensor(value)
        tensors["random/cpu"] = torch.get_rng_state()
        if device.type == "cuda":
            tensors["random/cuda"] = torch.cuda.get_rng_state(device)
        plain = {key: value for key, value in vars(state).items() if key not in ("best", "average")}
        arrays = {name: value.cpu().numpy() for name, value in tensors.items()}
        with atomic_file(self.path) as temporary:
            write_tensors(temporary, arrays, {"state": json.dumps(plain)})

    def load(
        self, network: nn.Module, parameters: dict[str, nn.Parameter], optimizer: torch.optim.Optimizer
    ) -> TrainingState:
        """Put network, optimizer and random generators back where they were, and return the position."""
        arrays, metadata = read_tensors(self.path)
        device = next(network.parameters()).device
        groups: dict[str, dict[str, Tensor]] = {"weights": {}, "best": {}, "average": {}, "random": {}}
        moments: dict[str, dict[str, Any]] = {}
        for full, array in arrays.items():
            kind, _, name = full.partition("/")
            value = torch.from_numpy(array)
            if kind == "optimizer":
                key, _, name = name.partition("/")
                # Adam counts its steps on the CPU unless it is fused, and then beside the parameter
                beside = key != "step" or device.type == "cuda"
                moments.setdefault(name, {})[key] = value.to(device) if beside else value
            else:
                groups[kind][name] = value if kind == "random" else value.to(device)
        if groups["weights"].keys() != parameters.keys() or any(
            groups["weights"][name].shape != parameter.shape for name, parameter in parameters.items()
        ):
            raise ModelError(f"{self.path} belongs to another network: remove it to train from the start")
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(groups["weights"][name])
                optimizer.state[parameter] = moments.get(name, {})
        torch.set_rng_state(groups["random"]["cpu"])
        if device.type == "cuda" and "cuda" in groups["random"]:
            torch.cuda.set_rng_state(groups["random"]["cuda"], device)
        return TrainingState(**json.loads(metadata["state"]), best=groups["best"], average=groups["average"])
