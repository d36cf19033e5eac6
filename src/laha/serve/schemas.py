"""What requests and answers look like; FastAPI makes the OpenAPI document of it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from laha.corpus import replace_surrogates


def _clean(value: Any) -> Any:
    """Replace what UTF-8 cannot spell, in a string or a list of strings, as everywhere in laha."""
    if isinstance(value, list):
        return [_clean(entry) for entry in value]
    return replace_surrogates(value) if isinstance(value, str) else value


Text = Annotated[str, BeforeValidator(_clean)]
Name = Annotated[str, BeforeValidator(_clean)]
Share = Annotated[float, Field(ge=0, le=1)]


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


Count = Annotated[int, Field(ge=1), BeforeValidator(_whole)]  # JSON tells 5.0 from 5 no more than JSON Schema does


class Request(BaseModel):
    """A request: nothing but what is described, and no guessing of types."""

    model_config = ConfigDict(extra="forbid", strict=True)


class TagRequest(Request):
    """One text or many, and which labels are wanted."""

    text: Annotated[str | list[str], BeforeValidator(_clean), Field(description="one text, or a list of them")]
    top: Count = Field(10, description="labels a text, at most")
    min_score: Share = Field(0.0, description="leave out labels below it")
    min_precision: Share | None = Field(
        None, description="leave out labels below the score that held this precision on held-out documents"
    )
    exclude: list[Name] = Field([], description="labels that are not wanted; unknown ones do not matter")


class ExplainRequest(Request):
    """A text, and the labels to explain; without, the best."""

    text: Text
    labels: list[Name] | None = None
    top: Count | None = Field(None, description="without labels: so many of the best")


class DecisionEntry(Request):
    """A decision on one label."""

    label: Name
    decision: Literal["accepted", "rejected", "added", "withdrawn"]


class FeedbackRequest(Request):
    """Decisions on one text: all are kept, or none."""

    text: Text
    decisions: list[DecisionEntry] = Field(min_length=1)


class LabelEntry(BaseModel):
    """A label: its uri is its identifier, where the corpus gives one."""

    label: str
    uri: str
    frequency: int = Field(description="training documents that have it")
    group: Literal["head", "torso", "tail", "unseen"] = Field(description="by frequency: above 50, above 5, the others")


class ScoredLabel(LabelEntry):
    """A label that was suggested."""

    score: float


class TaggedDocument(BaseModel):
    """A text's labels, best first."""

    sha256: str = Field(description="by which feedback knows the text")
    labels: list[ScoredLabel]


class TagAnswer(BaseModel):
    """A document a text, in the order of the request."""

    documents: list[TaggedDocument]


class WordAnswer(BaseModel):
    """A word at its place in the text, with its weights for one label."""

    word: str
    start: int
    end: int
    self: float
    interaction: float
    fused: float


class ExplainedLabel(BaseModel):
    """Why a label has its score."""

    label: str
    score: float
    alpha: float
    beta: float
    words: list[WordAnswer]
    experts: dict[str, float] = Field(description="each expert's share of the score, where several speak")


class ExplainAnswer(BaseModel):
    """The explained labels, best first; `start` and `end` count Unicode code points."""

    text: str
    labels: list[ExplainedLabel]


class LabelsAnswer(BaseModel):
    """Labels found by a part of their names."""

    labels: list[LabelEntry]


class GraphNeighbour(LabelEntry):
    """A label that shares documents."""

    documents: int


class VectorNeighbour(LabelEntry):
    """A label with a vector nearby."""

    similarity: float


class Neighbours(BaseModel):
    """Each list is null where the model does not know."""

    graph: list[GraphNeighbour] | None
    vectors: list[VectorNeighbour] | None


class LabelAnswer(LabelEntry):
    """All that is known of a label."""

    other_names: list[str]
    neighbours: Neighbours
    examples: list[str] | None = Field(description="the beginnings of some documents; null where none are kept")


class FrequencyBin(BaseModel):
    """How many labels have so many training documents."""

    documents: str
    labels: int


class ModelAnswer(BaseModel):
    """What the model is, what it can do, and what the server takes."""

    name: str
    model: str
    corpus: str | None
    labels: int
    words: int
    train_documents: int
    bytes: int
    device: str
    calibrated: bool
    explains: bool
    feedback: bool
    keeps_texts: bool
    new_labels: bool
    configuration: dict[str, Any]
    validation: dict[str, float]
    training: dict[str, Any]
    label_frequencies: list[FrequencyBin]
    groups: dict[str, int]
    limits: dict[str, int | float]


class FeedbackAnswer(BaseModel):
    """The decisions that stand on a text now, by label."""

    sha256: str
    decisions: dict[str, Literal["accepted", "rejected", "added"]]


class StateAnswer(BaseModel):
    """How the server is."""

    status: str


class AnnifBackend(BaseModel):
    """The algorithm, as Annif says it."""

    backend_id: str


class AnnifProject(BaseModel):
    """The model, as Annif says it."""

    project_id: str
    name: str
    language: str
    backend: AnnifBackend
    is_trained: bool
    modification_time: str | None


class AnnifProjects(BaseModel):
    """The one project there is."""

    projects: list[AnnifProject]


class AnnifResult(BaseModel):
    """A suggested subject."""

    uri: str
    label: str
    notation: str | None
    score: float


class AnnifResults(BaseModel):
    """Suggested subjects, best first."""

    results: list[AnnifResult]


class AnnifDocument(Request):
    """A document of a batch."""

    text: Text
    document_id: Name | None = None


class AnnifDocuments(Request):
    """A batch of documents."""

    documents: list[AnnifDocument]


class AnnifBatchResult(BaseModel):
    """The subjects of one document of a batch."""

    document_id: str | None
    results: list[AnnifResult]


class AnnifSubject(Request):
    """A subject of a document to learn from; found by its uri, else by its label."""

    model_config = ConfigDict(extra="ignore", strict=True)  # clients send notations and scores too

    uri: Name | None = None
    label: Name | None = None


class AnnifLearned(Request):
    """A document to learn from."""

    text: Text
    subjects: list[AnnifSubject]


class AnnifInfo(BaseModel):
    """What answers under this address."""

    title: str
    version: str
