#!/usr/bin/env bash
# Everything that needs a GPU, in one command for one lease of 150 s: times of the kernels, tagging, a training step, the
# kernels' tests (in processes beside each other, as each compiles kernels of its own).
#   benchmarks/gpu.sh             on the machine of the claims
#   benchmarks/gpu.sh --tiny      a test of this script without a GPU
# Writes benchmarks/results/{fused,training_step_cuda,gpu_tagging}.json, and copies them to $OUT where that is set. Every
# part is tried whatever became of the others.
set -uo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH=src PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
python=${PYTHON:-python3}
failed=0
part() { # SECONDS COMMAND...: run it for so long at most, and tell how it went
  local began=$SECONDS seconds=$1 code=0
  shift
  timeout "$seconds" "$@" || code=$?
  echo "[$SECONDS s] exit $code after $((SECONDS - began)) s: ${*:2}"
  [ $code -eq 0 ] || failed=1
}
if [ "${1:-}" = --tiny ]; then
  part 60 "$python" benchmarks/fused.py --tiny
  part 60 "$python" benchmarks/tagging.py --tiny
  part 60 "$python" benchmarks/training_step.py --tiny
  exit $failed
fi
part 50 "$python" benchmarks/fused.py --device cuda
part 30 "$python" benchmarks/tagging.py --device cuda
part 35 "$python" benchmarks/training_step.py --device cuda
if [ -n "${OUT:-}" ]; then
  for name in fused training_step_cuda gpu_tagging; do cp "benchmarks/results/$name.json" "$OUT/" || failed=1; done
fi
left=$((148 - SECONDS))
pids=()
test_part() { timeout $left "$python" -m pytest -q -p no:cacheprovider --deselect \
  tests/test_fused.py::test_the_kernels_compile_for_hopper_and_fit_it "$@" 2>&1 | tail -25; }
test_part tests/test_fused.py -k "hopper" & pids+=($!)
test_part tests/test_fused.py -k "gradient and not hopper and not formulas" & pids+=($!)
test_part tests/test_fused.py -k "gradient and formulas" & pids+=($!)
test_part tests/test_fused.py -k "bf16 or half" & pids+=($!)
test_part tests/test_fused.py -k "not hopper and not gradient and not bf16 and not half" & pids+=($!)
test_part tests/test_folded.py tests/test_shortlist.py tests/test_scoring.py & pids+=($!)
for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
echo "[$SECONDS s] failed: $failed"
exit $failed
