#!/usr/bin/env bash
# The paper's network on one prepared corpus: train, evaluate on the test part, record.
#   experiments/paper.sh PREPARED NAME [laha train settings …]
# trains runs/NAME and writes runs/NAME.results/CORPUS/laha-paper-SEED.json. Run from the repository's root; several may
# run side by side (their training time is then not recorded). experiments/README.md has the settings and why.
set -euo pipefail
prepared=$1 name=$2
shift 2
export PYTHONPATH=src OMP_NUM_THREADS=2
mkdir -p runs
python3 -m laha train "$prepared" --out "runs/$name" --model laha-paper "$@"
python3 -m laha evaluate "runs/$name" "$prepared" --intervals --record "runs/$name.results"
