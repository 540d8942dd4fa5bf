#!/usr/bin/env bash
# Runs one step of the method, with the sub-commands, environment variables and flags of the original's train_siamese.sh:
#
#   bash run_scripts/train_siamese.sh train|eval|predict|predict_pool|predict_dev|predict_full|do_senteval "FLAGS"
#
#   BERT_PREMODELS     folder of TF1 BERT checkpoints; BERT_NAME picks base (default), large or large-wwm in it
#   INIT_CKPT          checkpoint to start from (default: the bert_model.ckpt there)
#   GLUE_DIR           folder of the tasks; TASK_NAME picks one (default: STS-B)
#   OUTPUT_PARENT_DIR  folder for runs
#   EXP_NAME           the run that `predict` scores, as in --exp_name
#   BERT_HUB           TF-Hub handle, SavedModel folder or demo, instead of BERT_PREMODELS; not in the original, like PREPROCESS_HUB
set -euo pipefail
_here=${BASH_SOURCE[0]}
[[ $_here == */* ]] || _here=./$_here

stop() {
  printf 'error: %s\n' "$*" >&2
  exit 2
}

# require NAME... stops with one line that names all variables that are not set.
require() {
  local name missing=""
  for name in "$@"; do
    [[ -n ${!name:-} ]] || missing="$missing $name"
  done
  [[ -z $missing ]] || stop "environment variables not set:$missing"
}

if [[ ${1:-} == --help || ${1:-} == -h ]]; then
  sed -n -e '1d' -e '/^#/!Q' -e 's/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
  exit 0
fi
commands="train, eval, predict, predict_pool, predict_dev, predict_full or do_senteval"
command=${1:-}
TASK_NAME=${TASK_NAME:-STS-B}
case $command in
  train | eval | predict_pool | predict_dev | predict_full | do_senteval) needed=(GLUE_DIR OUTPUT_PARENT_DIR) ;;
  predict) needed=(GLUE_DIR OUTPUT_PARENT_DIR EXP_NAME) ;;
  "") stop "no sub-command given, expected $commands" ;;
  *) stop "unknown sub-command $command, expected $commands" ;;
esac
[[ -n ${BERT_HUB:-} ]] || needed=(BERT_PREMODELS "${needed[@]}")
require "${needed[@]}"
# Check this before .venv is made, which takes a minute.
if [[ $command == predict ]]; then
  # The last --exp_name=NAME or --exp_name NAME counts, as for the flags.
  name=".*[[:space:]]--?exp_name(=|[[:space:]]+)([^[:space:]]+)"
  [[ ! " ${*:2}" =~ $name || ${BASH_REMATCH[2]} == "$EXP_NAME" ]] ||
    stop "EXP_NAME is $EXP_NAME, and --exp_name is ${BASH_REMATCH[2]}: expected the same"
fi
[[ -d $GLUE_DIR ]] || stop "GLUE_DIR is $GLUE_DIR: no such folder"

if [[ -n ${BERT_HUB:-} ]]; then
  encoder=("--bert_hub=$BERT_HUB" ${PREPROCESS_HUB:+"--preprocess_hub=$PREPROCESS_HUB"})
else
  case ${BERT_NAME:-base} in
    base) BERT_DIR=$BERT_PREMODELS/uncased_L-12_H-768_A-12 ;;
    large) BERT_DIR=$BERT_PREMODELS/uncased_L-24_H-1024_A-16 ;;
    large-wwm) BERT_DIR=$BERT_PREMODELS/wwm_uncased_L-24_H-1024_A-16 ;;
    *) stop "BERT_NAME is $BERT_NAME, expected base, large or large-wwm" ;;
  esac
  [[ -d $BERT_DIR ]] || stop "BERT_PREMODELS is $BERT_PREMODELS: no folder $BERT_DIR"
  encoder=("--vocab_file=$BERT_DIR/vocab.txt" "--bert_config_file=$BERT_DIR/bert_config.json")
  INIT_CKPT=${INIT_CKPT:-$BERT_DIR/bert_model.ckpt}
fi

case $command in
  train) mode=(--do_train=true --do_eval=true) ;;
  eval) mode=(--do_eval=true) ;;
  predict) mode=(--do_predict=true) ;;
  predict_pool) mode=(--do_predict=true --predict_pool=True) ;;
  predict_dev) mode=(--do_predict=true --do_predict_on_dev=True --predict_pool=True) ;;
  predict_full) mode=(--do_predict=true --do_predict_on_full=True --predict_pool=True) ;;
  do_senteval) mode=(--do_senteval=true) ;;
esac
# As in the original, predict_pool, predict_dev and predict_full read the run's own checkpoint and name no other.
if [[ -n ${INIT_CKPT:-} && $command != predict_* ]]; then
  mode+=("--init_checkpoint=$INIT_CKPT")
fi

source "${_here%/*}/setup_env.sh"

# The original's README passes all flags as one quoted string, so split them at white space, without expanding file patterns.
set -f
flags=(${*:2})
"$VENV_PYTHON" -m bert_flow_tf.run_siamese \
  --task_name="$TASK_NAME" \
  --data_dir="$GLUE_DIR/$TASK_NAME" \
  --max_seq_length=64 \
  --output_parent_dir="$OUTPUT_PARENT_DIR" \
  "${encoder[@]}" "${mode[@]}" ${flags[@]+"${flags[@]}"}

if [[ $command == predict ]]; then
  "$VENV_PYTHON" -m bert_flow_tf.eval_stsb \
    --glue_path="$GLUE_DIR" \
    --task_name="$TASK_NAME" \
    --pred_path="$OUTPUT_PARENT_DIR/$EXP_NAME/test_results.tsv" \
    --is_test=1
fi
