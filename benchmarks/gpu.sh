#!/usr/bin/env bash
# Everything that needs a GPU, in one command for one lease: the kernels' tests, their times, a training step, tagging.
#   benchmarks/gpu.sh
# Writes benchmarks/results/{fused,training_step_cuda,gpu_tagging}.json, and copies them to $OUT where that is set. Every
# part is tried whatever became of the others.
set -uo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH=src PYTHONUNBUFFERED=1
failed=0
python3 -m pytest -q -p no:cacheprovider tests/test_fused.py tests/test_folded.py tests/test_shortlist.py || failed=1
python3 benchmarks/fused.py --device cuda || failed=1
python3 benchmarks/training_step.py --device cuda || failed=1
python3 benchmarks/tagging.py --device cuda || failed=1
if [ -n "${OUT:-}" ]; then
  for name in fused training_step_cuda gpu_tagging; do cp "benchmarks/results/$name.json" "$OUT/" || failed=1; done
fi
exit $failed
