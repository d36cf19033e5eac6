#!/usr/bin/env bash
# AttentionXML, XML-CNN and EXAM on two corpora, ten trainings side by side on one GPU, each tested and recorded.
#   experiments/deep_all.sh            from the repository's root, with prepared/arxiv-cs-multi and
#                                      prepared/stackexchange-4sites there
# Leaves runs/deep/NAME (model), NAME.results (result file) and NAME.log, and deep.tgz of results, logs and manifests in
# $OUT where that is set. Then, anywhere: python experiments/choose.py FOLDER takes them up, the better of two on
# validation. A training is ended after LIMIT seconds, and then has no result. LAHA_MPS=1 lets the processes share the
# GPU at one time rather than by turns (NVIDIA's MPS), where it works. CORPORA and EXTRA ('--set epochs=1 …') are for trying
# this script out.
set -uo pipefail
cd "$(dirname "$0")/.."
LIMIT=${LIMIT:-390} EXTRA=${EXTRA:-} PYTHON=${PYTHON:-python3}
export PYTHONPATH=src OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1
place=runs/deep
mkdir -p $place
started=$SECONDS

if [ "${LAHA_MPS:-}" = 1 ] && command -v nvidia-cuda-mps-control >/dev/null; then
  export CUDA_MPS_PIPE_DIRECTORY=/tmp/laha-mps CUDA_MPS_LOG_DIRECTORY=/tmp/laha-mps-log
  mkdir -p $CUDA_MPS_PIPE_DIRECTORY $CUDA_MPS_LOG_DIRECTORY
  nvidia-cuda-mps-control -d
  if timeout 30 $PYTHON -c 'import torch; torch.ones(1).cuda()'; then
    echo "MPS is on"
    trap 'echo quit | nvidia-cuda-mps-control' EXIT
  else
    echo "MPS does not work here: by turns, then"
    echo quit | timeout 10 nvidia-cuda-mps-control
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
  fi
fi

# job NAME MODEL CORPUS [settings …]
job() {
  local name=$1 model=$2 corpus=prepared/$3
  shift 3
  {
    # shellcheck disable=SC2086  # EXTRA is several words
    timeout -k 20 "$LIMIT" $PYTHON -m laha train "$corpus" --out $place/$name --model $model --shared-machine "$@" $EXTRA &&
      $PYTHON -m laha evaluate $place/$name "$corpus" --intervals --record $place/$name.results
    echo "exit $?"
  } >$place/$name.log 2>&1
  echo "$name: $(tail -1 $place/$name.log) after $((SECONDS - started)) s"
}

CYCLE="--set schedule=one-cycle --set patience=99 --set batch=128"
for corpus in ${CORPORA:-stackexchange-4sites arxiv-cs-multi}; do
  # arxiv-cs-multi has 150 labels, learned in few epochs and soon overfitted; stackexchange-4sites has 2,017.
  case $corpus in
    arxiv-cs-multi) short=ax paper="epochs=8 average_from=4" cycle=6 drop="word_dropout=0.5 state_dropout=0.5" cnn=8 ;;
    *) short=se paper="epochs=15 average_from=6" cycle=20 drop="word_dropout=0.3 state_dropout=0.4" cnn=15 ;;
  esac
  sets() { printf -- '--set %s ' "$@"; }
  # shellcheck disable=SC2046,SC2086
  {
    job $short-attentionxml-cycle attentionxml $corpus $CYCLE $(sets $drop epochs=$cycle learning_rate=0.002 average_from=0) &
    job $short-attentionxml-paper attentionxml $corpus $(sets $paper batch=128 patience=99) &
    job $short-exam-cycle exam $corpus $CYCLE $(sets epochs=$cnn) &
    job $short-xml-cnn-cycle xml-cnn $corpus $CYCLE $(sets epochs=$cnn word_dropout=0.5) &
    job $short-xml-cnn-paper xml-cnn $corpus $(sets epochs=$cnn patience=4) &
  }
done
wait
echo "all: $((SECONDS - started)) s"
if [ -n "${OUT:-}" ]; then
  tar czf "$OUT/deep.tgz" -C $place $(cd $place && ls -d ./*.log ./*.results/*/*.json ./*/manifest.json ./*/training.jsonl 2>/dev/null)
fi
