#!/usr/bin/env bash
# A deep baseline on one prepared corpus: train, evaluate on the test part, record.
#   experiments/deep.sh MODEL PREPARED NAME [laha train settings …]
# MODEL is attentionxml, xml-cnn or exam. Trains runs/NAME and writes runs/NAME.results/CORPUS/MODEL-SEED.json. Run from
# the repository's root; several may run side by side with --shared-machine (their training time is then not recorded).
# experiments/README.md has the settings and why.
set -euo pipefail
model=$1 prepared=$2 name=$3
shift 3
export PYTHONPATH=src OMP_NUM_THREADS=2
mkdir -p runs
python3 -m laha train "$prepared" --out "runs/$name" --model "$model" "$@"
python3 -m laha evaluate "runs/$name" "$prepared" --intervals --record "runs/$name.results"
