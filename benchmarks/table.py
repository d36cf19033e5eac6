"""Print the README's table of speed from the result files: `python benchmarks/table.py`."""

from __future__ import annotations

import json
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
# result file, id, what it says; the bar of one whose file is not there yet is written here
CLAIMS = (
    ("cpu_scoring", "cpu-folded", "CPU, exact: folded against the formulas as written, 22,625 labels", ""),
    ("cpu_scoring", "cpu-folded-memory", "the same, peak memory beside the model", ""),
    ("cpu_scoring", "cpu-bfloat16", "CPU, exact, bfloat16 a document; beside float32", ""),
    ("cpu_scoring", "cpu-shortlist-folded", "CPU, labels' side: a shortlist of 512 against exact, folded", ""),
    ("shortlist_quality", "cpu-shortlist-P@5", "P@5 by the shortlist beside exact (tibkat-en, a small LAHA)", ""),
    ("cpu_scoring", "cpu-latency", "CPU, one core: a text to its five best labels; beside exact", ""),
    ("label_growth", "label-growth", "CPU, one document: 1,000,000 labels against 10,000", ""),
    ("training_step_cpu", "cpu-step", "CPU, a training step; beside the formulas as written", ""),
    ("fused", "fused-forward", "GPU, after the encoder, 29,947 labels × 64 documents, forward", "≤ 6.5 ms"),
    ("fused", "fused-forward-memory", "the same, peak memory", "≤ 0.6 GiB"),
    ("fused", "fused-training", "GPU, the same, forward and backward", "≤ 40 ms"),
    ("fused", "fused-training-memory", "the same, peak memory", "≤ 2.5 GiB"),
    ("fused", "fused-error", "GPU, error against float64", "≤ the formulas in bf16"),
    ("gpu_tagging", "gpu-tagging", "GPU, documents tagged a second, 22,625 labels, exact", "≥ 15,000"),
    (
        "serve_load",
        "serve-gain-bfloat16",
        "`laha serve`, bfloat16, 50 clients, 22,625 labels: batches against one by one",
        "≥ 3",
    ),
    ("serve_load", "serve-p99-bfloat16", "the same, 99 of 100 answers within; beside one by one", "≤ 1 s"),
    ("serve_memory", "serve-memory", "`laha serve`: memory after 50,000 requests against after 10,000", "≤ 2 % more"),
)
MORE_IS_BETTER = ("times faster", "times the requests", "documents/s", "%")


def table(results: Path = RESULTS) -> str:
    """Return one Markdown row a claim."""
    lines = ["| claim | measured | beside it | bar |", "|---|---|---|---|"]
    for name, id, words, bar in CLAIMS:
        path = results / f"{name}.json"
        if not path.exists():
            lines.append(f"| {words} | not measured yet | | {bar} |")
            continue
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
        found = next(row for row in rows if row["id"] == id)
        unit = found["unit"]
        baseline = "" if found["baseline"] is None else f"{found['baseline']:.3g} {unit}"
        sign = "≥" if unit in MORE_IS_BETTER else "≤"
        limit = f"{sign} {found['bar']:.3g}"
        lines.append(
            f"| {words} | {found['value']:.3g} {unit} | {baseline} | {limit}{'' if found['met'] else ', **missed**'} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
