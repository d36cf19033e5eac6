"""Model names -> estimators, imported only when asked for."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from laha.errors import ConfigurationError, ModelError, nearest
from laha.estimator import Estimator
from laha.storage import read_manifest

DEFAULT = "laha"
# name -> module, class, the settings that make the variant
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "laha": ("laha.tagger", "LAHA", {}),
    "laha-best": ("laha.tagger", "LAHA", {"preset": "best"}),
    "laha-paper": ("laha.tagger", "LAHA", {"preset": "paper"}),
    "laha-self": ("laha.tagger", "LAHA", {"preset": "paper", "attention": "self"}),
    "laha-interaction": ("laha.tagger", "LAHA", {"preset": "paper", "attention": "interaction"}),
    "laha-mean": ("laha.tagger", "LAHA", {"preset": "paper", "fusion": "mean"}),
    "attentionxml": ("laha.baselines.attentionxml", "AttentionXML", {}),
    "exam": ("laha.baselines.exam", "EXAM", {}),
    "xml-cnn": ("laha.baselines.xml_cnn", "XMLCNN", {}),
    "fastxml": ("laha.baselines.fastxml", "FastXML", {}),
    "pfastrexml": ("laha.baselines.pfastrexml", "PfastreXML", {}),
    "sleec": ("laha.baselines.sleec", "SLEEC", {}),
    "parabel": ("laha.baselines.parabel", "Parabel", {}),
    "bonsai": ("laha.baselines.bonsai", "Bonsai", {}),
    "one-vs-all": ("laha.baselines.one_vs_all", "OneVsAll", {}),
    "popular": ("laha.baselines.popular", "Popular", {}),
    "peer:omikuji": ("laha.baselines.peers.omikuji", "OmikujiPeer", {}),
    "peer:napkinxc": ("laha.baselines.peers.napkinxc", "NapkinXCPeer", {}),
    "peer:libpecos": ("laha.baselines.peers.libpecos", "LibpecosPeer", {}),
}


def estimator_class(name: str) -> type[Estimator]:
    """Return the class behind a model name."""
    if name not in MODELS:
        raise ConfigurationError(f"there is no model '{name}': {nearest(name, list(MODELS))}")
    module, kind, _ = MODELS[name]
    found: type[Estimator] = getattr(import_module(module), kind)
    return found


def create(name: str, **settings: Any) -> Estimator:
    """Make an untrained model by its name; the settings that make the variant cannot be changed."""
    kind, fixed = estimator_class(name), MODELS[name][2]
    for key, value in fixed.items():
        if settings.get(key, value) != value:
            raise ConfigurationError(f"{name} has {key}={value}: leave out {key}={settings[key]} or name another model")
    return kind(**{**settings, **fixed})


def load(path: str | Path, device: str = "auto") -> Estimator:
    """Load any model folder, whichever model wrote it."""
    name = read_manifest(Path(path), "model", check=False).get("model")
    if name not in MODELS:
        raise ModelError(f"{path} holds a model '{name}' that this laha does not know: upgrade laha")
    return estimator_class(name).load(path, device)
