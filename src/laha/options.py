"""The arguments and options that several verbs of the command line share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

CorpusArgument = Annotated[
    str, typer.Argument(metavar="CORPUS", help="a file, a folder, a name in --data, or builtin:pydocs")
]
ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="a model folder made by 'laha train'")]
OutOption = Annotated[Path, typer.Option("--out", metavar="DIR", help="the folder to write")]
DataOption = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="a folder of corpora; without, $LAHA_DATA")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="change a setting, such as epochs=5; may be repeated"),
]
DeviceOption = Annotated[str, typer.Option("--device", metavar="auto|cpu|cuda", help="where to compute")]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="every random draw follows it")]
ExactOption = Annotated[
    bool, typer.Option("--exact", help="score every label, where the model would score a shortlist of them")
]
PrecisionOption = Annotated[
    str,
    typer.Option(
        "--precision",
        metavar="auto|float32|bfloat16",
        help="of scores; bfloat16 is faster, auto takes it on a GPU",
    ),
]
BudgetOption = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="10m",
        help="stop by then (s, m, h): seconds bring a usable model, more a better one; without, 30m on a CPU",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="print one JSON document")]
WordVectorsOption = Annotated[
    Path | None,
    typer.Option("--word-vectors", metavar="FILE", help="GloVe, word2vec or fastText vectors; without, trained"),
]
LabelVectorsOption = Annotated[
    Path | None,
    typer.Option(
        "--label-vectors", metavar="FILE", help="label vectors (.npy, or NAME TAB numbers); without, node2vec"
    ),
]
SharedOption = Annotated[
    bool, typer.Option("--shared-machine", help="other work runs beside this: record no training time")
]
