"""The settings of the server: what it accepts, how it batches, what it keeps; each default with its reason."""

from __future__ import annotations

from dataclasses import dataclass

from laha.configuration import check_range


@dataclass(frozen=True, kw_only=True)
class ServeConfiguration:
    """Bounds and choices; beyond a bound a request gets 413, 422 or 429, never more work than it may cost."""

    max_body: int = 4_000_000  # bytes of a request: above it 413; a batch of the largest size in common use fits
    max_text: int = 200_000  # characters of a text: above it 422; a book's chapter, of which models read the beginning
    max_texts: int = 256  # texts in one request: above it 422
    max_top: int = 100  # labels asked for or excluded; above it 422
    max_decisions: int = 256  # decisions in one request of feedback: above it 422
    max_requests: int = 200  # requests in work at once: above it 429
    max_queue: int = 1_024  # texts waiting for the model: above it 429; some seconds' worth on two cores
    body_seconds: float = 20.0  # for a request's body to arrive: above it 408, lest slow senders take every place
    drain_seconds: float = 30.0  # that requests in work get after SIGTERM
    batch_texts: int = 64  # texts that the model reads at once, at most; 1: one by one
    batch_milliseconds: float = 3.0  # that a lone text waits for others: little beside what the model takes for it
    explained: int = 10  # labels explained in one request when none are named, and half of how many may be named
    keep_texts: bool = True  # with feedback; without, training can use it only for texts of the corpus itself
    keep_feedback: bool = True
    new_labels: bool = False  # feedback may name labels that the model does not know; a typing error would be one
    log_requests: bool = True  # a line each: method, route, status, time; never a text
    language: str = "und"  # what Annif's interface says of a project; "und": undetermined

    def __post_init__(self) -> None:
        counts = ("max_text", "max_texts", "max_top", "max_decisions", "max_requests", "max_queue", "batch_texts")
        check_range(self, (*counts, "explained"), 1)
        check_range(self, ("max_body",), 1_000)
        check_range(self, ("body_seconds", "drain_seconds"), 0.1)
        check_range(self, ("batch_milliseconds",), 0, 1_000)
