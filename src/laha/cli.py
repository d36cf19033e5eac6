"""The command line: verbs only — parse, call, print."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sys
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from laha.errors import ConfigurationError, Interrupted, LahaError, nearest
from laha.options import (
    BudgetOption,
    CorpusArgument,
    DataOption,
    DeviceOption,
    ExactOption,
    JsonOption,
    LabelVectorsOption,
    ModelArgument,
    OutOption,
    PrecisionOption,
    SeedOption,
    SetOption,
    SharedOption,
    WordVectorsOption,
)
from laha.terminal import SHOWN, number, progress_bar, row, shortlist_line, show_explanation, table

app = typer.Typer(
    name="laha",
    help="Tag documents from a label set too large to read, and see the words behind every tag.",
    epilog="Start with 'laha demo'. CORPUS is a file (.jsonl, .csv, .tsv, fastText or Annif text, .parquet; .gz too), "
    "a folder with train.*, valid.*, test.*, a folder made by 'laha prepare', a name in --data, or builtin:pydocs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
data_app = typer.Typer(help="Describe a corpus, or convert it to another format.", no_args_is_help=True)
app.add_typer(data_app, name="data")


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="the model to write")] = Path("laha-demo"),
) -> None:
    """Train on Python's own documentation, show the metrics, and tag two texts with the words behind each tag."""
    from laha.demo import TEXTS, run_demo

    with progress_bar() as progress:
        report, floor, model = run_demo(out, progress, command_line())
    note(f"\nTested on {report.documents} documents the model has not seen, against ranking labels by frequency:\n")
    print_table(["", *SHOWN], [["laha", *row(report.metrics)], ["by frequency", *row(floor.metrics)]])
    for text in TEXTS:
        print()
        show_explanation(model.explain(text, top=3))
    program = sys.argv[0] if Path(sys.argv[0]).name == "laha" else "python -m laha"
    note(f"\nThe model is in {out}. Tag a text of your own: echo 'some text' | {program} tag {out}")


@app.command()
def prepare(
    corpus: CorpusArgument,
    out: OutOption,
    word_vectors: WordVectorsOption = None,
    label_vectors: LabelVectorsOption = None,
    settings: SetOption = None,
    seed: SeedOption = 0,
    data: DataOption = None,
) -> None:
    """Tokenise a corpus, make word and label vectors: all that training needs, in one folder.

    'laha train' then takes that folder as CORPUS, and needs neither gensim nor the texts.
    """
    from laha.configuration import build, parse_settings
    from laha.datasets import open_parts
    from laha.prepared import PreparationConfiguration
    from laha.prepared import prepare as make
    from laha.storage import check_replaceable

    given = parse_settings(PreparationConfiguration, settings or [])
    configuration = build(PreparationConfiguration, given | vector_files(word_vectors, label_vectors))
    check_replaceable(out)
    with progress_bar() as progress:
        prepared = make(open_parts(corpus, data), configuration, seed, progress)
        prepared.save(out)
    counts = ", ".join(f"{len(part)} {name}" for name, part in prepared.parts.items())
    note(f"{out}: {counts} documents, {len(prepared.vocabulary.words)} words, {prepared.train_labels} labels")


@app.command()
def train(
    corpus: CorpusArgument,
    out: OutOption,
    valid: Annotated[
        str | None, typer.Option("--valid", metavar="CORPUS", help="validate on this; without, CORPUS's own part")
    ] = None,
    model: Annotated[
        str, typer.Option("--model", metavar="NAME", help="laha, attentionxml, parabel, …: the README lists them")
    ] = "laha",
    word_vectors: WordVectorsOption = None,
    label_vectors: LabelVectorsOption = None,
    settings: SetOption = None,
    budget: BudgetOption = None,
    device: DeviceOption = "auto",
    seed: SeedOption = 0,
    resume: Annotated[bool, typer.Option("--resume", help="continue the unfinished training of this model")] = False,
    feedback: Annotated[
        Path | None, typer.Option("--feedback", metavar="FILE", help="learn from decisions that 'laha serve' kept too")
    ] = None,
    shared: SharedOption = False,
    track: Annotated[
        Path | None, typer.Option("--tensorboard", metavar="DIR", help="log to TensorBoard as well (laha\\[track])")
    ] = None,
    data: DataOption = None,
) -> None:
    """Learn from tagged documents; Ctrl-C saves, and --resume continues.

    A folder gives its train and valid parts; without a valid part a tenth of train is held out. The checkpoint with
    the best validation nDCG@5 becomes the model. The default model is on disk as soon as its first experts are, and is
    replaced whenever it got better; --budget says when to stop.
    """
    from laha.configuration import known_settings, parse_duration, parse_settings
    from laha.registry import create, estimator_class
    from laha.training_folder import holds_work, train_to_folder, work_folder

    kind = estimator_class(model).Configuration
    given = parse_settings(kind, settings or []) | vector_files(word_vectors, label_vectors)
    given |= {key: value for key, value in {"seed": seed, "device": device}.items() if key in known_settings(kind)}
    if budget is not None:
        if "budget" not in known_settings(kind):
            raise ConfigurationError(f"{model} cannot keep a --budget: only laha can")
        given["budget"] = parse_duration(budget)
    estimator = create(model, **given)
    _ = estimator.configuration  # a wrong value is told before the corpus is read
    facts: dict[str, Any] = {"command": command_line()} | ({"seconds": None} if shared else {})
    source = open_source(corpus, valid, data, feedback, facts)
    try:
        with progress_bar() as progress:
            train_to_folder(estimator, source, out, resume, facts, progress, track)
    except (Interrupted, KeyboardInterrupt) as stop:
        work = work_folder(out)
        kept = (
            f"continue with --resume and the same settings (kept in {work})"
            if holds_work(work)
            else "nothing of it is kept, so start anew"
        )
        model_kept = f"{out} is the best so far; " if out.exists() else ""
        raise Interrupted(f"stopped; {model_kept}{kept}") from stop
    score = estimator.trained_.get("validation", {}).get("nDCG@5")
    note(f"{out}: {len(estimator.labels_)} labels" + ("" if score is None else f", validation nDCG@5 {score:.2f}"))
    if "network" in estimator.trained_:
        note(f"the network was {estimator.trained_['network']}: with a longer --budget it joins the other experts")


@app.command()
def tag(
    model: ModelArgument,
    file: Annotated[str, typer.Argument(metavar="[FILE or -]", help="documents; - or nothing reads stdin")] = "-",
    top: Annotated[int, typer.Option("--top", min=1, help="labels a document, at most")] = 5,
    min_score: Annotated[float, typer.Option("--min-score", min=0, max=1, help="leave out labels below it")] = 0.0,
    min_precision: Annotated[
        float | None,
        typer.Option(
            "--min-precision", min=0, max=1, help="give as many labels as were right so often on validation, or none"
        ),
    ] = None,
    format: Annotated[
        str | None, typer.Option("--format", metavar="jsonl|text|…", help="of the input; without, by ending or content")
    ] = None,
    exact: ExactOption = False,
    precision: PrecisionOption = "auto",
    device: DeviceOption = "auto",
) -> None:
    """Tag documents, one JSON line each: {"id", "labels": [{"label", "score"}]}. Streams input of any length."""
    from laha.formats import open_binary, read_stream, sniff_format
    from laha.registry import load
    from laha.tagging import tag_records

    check_precision(precision)
    estimator = load(model, device)
    estimator.exact, estimator.scoring_precision = exact, precision
    if min_precision is not None:
        min_score = max(min_score, estimator.score_at_precision(min_precision))
    stdin = cast(BufferedReader, sys.stdin.buffer)
    with stdin if file == "-" else open_binary(Path(file)) as handle:
        kind = format or sniff_format(handle.peek(65536), None if file == "-" else file)
        records = read_stream(handle, kind, "<stdin>" if file == "-" else file)
        try:
            for tagged in tag_records(estimator, records, top, min_score):
                sys.stdout.write(json.dumps(tagged, ensure_ascii=False) + "\n")
            sys.stdout.flush()
        except BrokenPipeError:  # the reader has gone, as with `| head`: nothing is left to do
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@app.command()
def evaluate(
    model: ModelArgument,
    corpus: CorpusArgument,
    as_json: JsonOption = False,
    intervals: Annotated[bool, typer.Option("--intervals", help="add bootstrap 95 % intervals")] = False,
    record: Annotated[
        Path | None, typer.Option("--record", metavar="DIR", help="write the result file DIR/CORPUS/MODEL-SEED.json")
    ] = None,
    part: Annotated[str, typer.Option("--part", metavar="test|valid|train", help="the part of a folder")] = "test",
    exact: ExactOption = False,
    precision: PrecisionOption = "auto",
    device: DeviceOption = "auto",
    data: DataOption = None,
) -> None:
    """Rank all labels for documents whose labels are known, and print the metrics in percent."""
    from laha.datasets import open_corpus
    from laha.evaluation import evaluate as measure
    from laha.prepared import open_prepared
    from laha.registry import load
    from laha.results import record as write_result

    check_precision(precision)
    estimator = load(model, device)
    estimator.exact, estimator.scoring_precision = exact, precision
    prepared = open_prepared(corpus, data)
    source = prepared if prepared is not None else open_corpus(corpus, part, data)
    with progress_bar() as progress:
        report = measure(estimator, source, intervals, part, progress)
    if record is not None:
        sha256 = source.sha256() if prepared is None else prepared.part(part).sha256  # type: ignore[union-attr]
        note(str(write_result(model, report, source.name, sha256, part, command_line(), record)))
    if as_json:
        print(json.dumps(report.as_json(), indent=1))
        return
    rows = [["all labels", *row(report.metrics), str(report.documents)]]
    rows += [[name, *row(group), f"{group['documents']:.0f}"] for name, group in report.groups.items()]
    print_table(["labels by training frequency F", *SHOWN, "documents"], rows)
    if report.intervals:
        reach = [f"{low:.1f}–{high:.1f}" for low, high in (report.intervals[name] for name in SHOWN)]
        print_table(["95 % interval", *SHOWN], [["all labels", *reach]])
    if report.documents_without_labels:
        note(f"{report.documents_without_labels} documents without labels were left out")


@app.command()
def explain(
    model: ModelArgument,
    text: Annotated[str, typer.Option("--text", help="the document; - reads stdin")],
    label: Annotated[list[str] | None, typer.Option("--label", help="explain this label; may be repeated")] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="without --label: the best so many")] = 5,
    as_json: JsonOption = False,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="write a self-contained page")] = None,
    device: DeviceOption = "auto",
) -> None:
    """Show the words behind the labels of a text: a heat map in the terminal, as JSON, or as a page."""
    from laha.heat_map import heat_map
    from laha.registry import load

    estimator = load(model, device)
    if not hasattr(estimator, "explain"):
        raise LahaError(f"{estimator.model_name} has no attention to explain: take a laha model or attentionxml")
    explanation = estimator.explain(sys.stdin.read() if text == "-" else text, label or None, top)
    if html is not None:
        try:
            html.write_text(heat_map(explanation), encoding="utf-8")
        except OSError as error:
            raise LahaError(
                f"{html} cannot be written ({error.strerror}): name a file in an existing folder"
            ) from error
        note(f"wrote {html}")
    if as_json:
        print(json.dumps(explanation.as_json(), ensure_ascii=False))
    elif html is None:
        show_explanation(explanation)


@app.command()
def compare(
    corpus: CorpusArgument,
    models: Annotated[str, typer.Option("--models", metavar="A,B,C", help="such as popular,one-vs-all,parabel,laha")],
    out: OutOption,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="MODEL.KEY=VALUE", help="a setting of one model; may be repeated"),
    ] = None,
    device: DeviceOption = "auto",
    seed: SeedOption = 0,
    shared: SharedOption = False,
    as_json: JsonOption = False,
    data: DataOption = None,
) -> None:
    """Train several models on a corpus, each in its own process, and print one table of quality, time and memory.

    The same command again goes on where it stopped: a finished model is not trained anew. Besides the table (Markdown,
    JSON and, with laha\\[plots], bar plots), DIR receives the models and a result file each.
    """
    from laha import comparison, comparison_report
    from laha.datasets import content_sha256

    names = [name.strip() for name in models.split(",") if name.strip()]
    sha256 = content_sha256(corpus, data)
    jobs = comparison.plan(corpus, names, out, settings or [], data, device, seed, shared, command_line(), sha256)
    with progress_bar() as progress:
        rows = comparison.compare(jobs, progress)
        plots = comparison_report.draw_plots(rows, corpus, out)
    if as_json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
    else:
        print_table(comparison_report.HEADER, [comparison_report.cells(row) for row in rows])
    note(f"{out}: comparison.md, comparison.json, " + (", ".join(path.name for path in plots) or "no plots"))
    if not plots:
        note("bar plots need a finished model and matplotlib: pip install 'laha[plots]'")
    failed = [row for row in rows if "failed" in row]
    for row_failed in failed:
        note(f"{row_failed['model']} failed: {row_failed['failed']}")
    if failed:
        raise LahaError(f"{len(failed)} of {len(rows)} models failed; the same command tries them again")


@app.command()
def info(model: ModelArgument, as_json: JsonOption = False) -> None:
    """Say what a model is: its corpus, counts, configuration, metrics and size."""
    from laha.results import model_bytes
    from laha.storage import read_manifest

    manifest = read_manifest(model, "model")
    if as_json:
        print(json.dumps(manifest, indent=1, ensure_ascii=False))
        return
    training = manifest["training"]
    facts = {
        "model": manifest["model"],
        "corpus": training.get("corpus"),
        "labels": manifest["labels"],
        "words": manifest["words"],
        "training documents": manifest["train_documents"],
        "size": f"{model_bytes(manifest) / 1e6:.1f} MB",
        "trained on": training.get("device"),
        "training time": None if training.get("seconds") is None else f"{training['seconds']:.0f} s",
        "best epoch": training.get("best_epoch"),
        "shortlist": shortlist_line(training.get("shortlist")),
    }
    facts |= {
        f"validation {name}": f"{training['validation'][name]:.2f}"
        for name in SHOWN
        if name in (training.get("validation") or {})
    }
    print_table(["", str(model)], [[key, str(value)] for key, value in facts.items() if value is not None])
    print_table(["setting", "value"], [[key, str(value)] for key, value in manifest["configuration"].items()])


@app.command()
def serve(
    model: ModelArgument,
    host: Annotated[str, typer.Option("--host", help="the address to listen on; 0.0.0.0 is every one")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any that is free")] = 8000,
    feedback: Annotated[
        Path | None, typer.Option("--feedback", metavar="FILE", help="keep decisions there; without, beside the model")
    ] = None,
    examples: Annotated[
        str | None, typer.Option("--examples", metavar="CORPUS", help="show beginnings of its documents with labels")
    ] = None,
    api_key_file: Annotated[
        Path | None, typer.Option("--api-key-file", metavar="FILE", help="ask for this key; without, $LAHA_API_KEY")
    ] = None,
    settings: SetOption = None,
    exact: ExactOption = False,
    precision: PrecisionOption = "auto",
    device: DeviceOption = "auto",
    data: DataOption = None,
) -> None:
    """Serve a page where people tag texts and see why, a REST interface, and Annif's (/v1).

    Bounds and choices are settings (--set max_text=…, batch_texts=…, keep_texts=false): the README lists them.
    Decisions are kept in MODEL.feedback.sqlite; 'laha train --feedback' learns from them. SIGTERM answers what is in
    work first.
    """
    # oneDNN keeps what it compiled for each shape of a batch, by default of 1,024: memory grew by a fifth over 50,000
    # requests (benchmarks/serve_load.py). With 16 no load was measurably slower.
    for cache in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(cache, "16")
    from laha.registry import load

    try:
        from laha.serve.configuration import ServeConfiguration
        from laha.serve.server import log_to_stderr, read_api_key
        from laha.serve.server import serve as run
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("laha"):
            raise
        raise LahaError(f"the server needs {error.name}: pip install 'laha[serve]'") from error
    from laha.configuration import build, parse_settings
    from laha.datasets import open_corpus

    check_precision(precision)
    configuration = build(ServeConfiguration, parse_settings(ServeConfiguration, settings or []))
    key = read_api_key(api_key_file)

    def read() -> Any:
        estimator = load(model, device)
        estimator.exact, estimator.scoring_precision = exact, precision
        return estimator

    log_to_stderr()
    kept = None if examples is None else (lambda: open_corpus(examples, "train", data))
    run(model, read, host, port, configuration, feedback, kept, key, note)


@data_app.command("describe")
def data_describe(corpus: CorpusArgument, as_json: JsonOption = False, data: DataOption = None) -> None:
    """Print a corpus's counts as in the paper's Table 1, and how often its labels occur."""
    from laha.datasets import open_parts
    from laha.statistics import describe
    from laha.vocabulary import Tokenizer

    figures = describe(open_parts(corpus, data), Tokenizer().words)
    if as_json:
        print(json.dumps(figures, indent=1, ensure_ascii=False))
        return
    bins = figures.pop("label_frequencies")
    print_table(["", figures.pop("name")], [[key.replace("_", " "), number(value)] for key, value in figures.items()])
    most = max((entry["labels"] for entry in bins), default=0) or 1
    bars = [[e["documents"], str(e["labels"]), "█" * round(40 * e["labels"] / most)] for e in bins]
    print_table(["training documents", "labels", ""], bars)


@data_app.command("convert")
def data_convert(
    corpus: CorpusArgument,
    destination: Annotated[Path, typer.Argument(help="a file (its ending says the format) or a folder")],
    part: Annotated[str | None, typer.Option("--part", metavar="train|valid|test", help="only this part")] = None,
    format: Annotated[
        str | None, typer.Option("--format", help="jsonl, csv, tsv, fasttext, annif, parquet or xmc")
    ] = None,
    data: DataOption = None,
) -> None:
    """Write a corpus in another format."""
    from laha.datasets import convert, open_corpus, open_parts

    source = open_parts(corpus, data) if part is None else open_corpus(corpus, part, data)
    convert(source, destination, format)
    note(f"wrote {destination}")


def open_source(
    corpus: str, valid: str | None, data: Path | None, feedback: Path | None = None, facts: dict[str, Any] | None = None
) -> Any:
    """Return the prepared corpus, or a function that reads the train and valid parts; `facts` say what feedback did."""
    from dataclasses import replace

    from laha.datasets import open_corpus, open_parts
    from laha.feedback import learn_from_feedback
    from laha.prepared import open_prepared

    prepared = open_prepared(corpus, data)
    if prepared is not None:
        if feedback is not None:
            raise LahaError("a prepared folder has no texts for feedback to join: give the corpus it was made of")
        if valid is not None:
            raise LahaError("a prepared folder has its own valid part: leave out --valid, or prepare it anew")
        return prepared

    def read() -> Any:
        parts = open_parts(corpus, data, wanted=("train", "valid"))
        if valid is not None:
            parts = replace(parts, valid=open_corpus(valid, "valid", data))
        if feedback is not None:
            parts, counts = learn_from_feedback(parts, feedback)
            note(f"feedback: {counts['added']} texts added to the training documents, {counts['changed']} changed")
            (facts if facts is not None else {})["feedback"] = counts
        return parts

    return read


def vector_files(word_vectors: Path | None, label_vectors: Path | None) -> dict[str, str]:
    """Return the settings that name vector files."""
    files = {"word_vectors": word_vectors, "label_vectors": label_vectors}
    return {key: str(path) for key, path in files.items() if path is not None}


def check_precision(precision: str) -> None:
    """Refuse a precision that no model has, before a model is read."""
    known = ["auto", "float32", "bfloat16"]
    if precision not in known:
        raise LahaError(f"--precision {precision}: {nearest(precision, known)}")


def note(text: str) -> None:
    """Tell the person; stdout is for results."""
    print(text, file=sys.stderr)


def print_table(header: list[str], rows: list[list[str]]) -> None:
    """Print a table on stdout, folded where a terminal is narrower."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print(table(header, rows, width))


def command_line() -> str:
    """Return the command as typed, without the folder that the program lies in."""
    return shlex.join(["laha", *sys.argv[1:]])


def main() -> None:
    """Run a command; a LahaError is one line on stderr and exit code 1, an interrupt 130."""
    try:
        app(standalone_mode=True)
    except (Interrupted, KeyboardInterrupt) as stop:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # an impatient second Ctrl-C must not spoil the way out
        note(f"laha: {stop if isinstance(stop, Interrupted) else 'interrupted'}")
        sys.exit(130)
    except LahaError as error:
        note(f"laha: {error}")
        sys.exit(1)
