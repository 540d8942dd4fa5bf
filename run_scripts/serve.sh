#!/usr/bin/env bash
# Serves an exported model over gRPC (port 8500) and REST (port 8501):
#
#   bash run_scripts/serve.sh EXPORT/NAME [arguments of tensorflow_model_server]
#
# This runs tensorflow_model_server from the PATH, else the official image by docker or podman; SERVING_IMAGE names
# another image. The server listens on all addresses of this machine. The model's name is the folder's. docs/serving.md shows requests.
set -euo pipefail

stop() {
  printf 'error: %s\n' "$*" >&2
  exit 2
}

[[ ${1-} && $1 != -* ]] || stop "found '${1-}', expected serve.sh EXPORT/NAME [arguments of tensorflow_model_server]"
compgen -G "$1/[0-9]*/saved_model.pb" >/dev/null || stop "$1: holds no $1/1/saved_model.pb; run bert-flow export first"
# CDPATH would make cd print the folder.
folder=$(CDPATH="" cd -- "$1" && pwd)
arguments=(--port=8500 --rest_api_port=8501 --model_name="${folder##*/}" "${@:2}")

if command -v tensorflow_model_server >/dev/null; then
  exec tensorflow_model_server --model_base_path="$folder" "${arguments[@]}"
fi
runner=$(command -v docker || command -v podman) ||
  stop "tensorflow_model_server, docker and podman are missing; see https://www.tensorflow.org/tfx/serving/setup"
# Process 1 would ignore Ctrl-C without --init.
exec "$runner" run --rm --init --publish=8500:8500 --publish=8501:8501 \
  --mount="type=bind,source=$folder,target=/models/model,readonly" --entrypoint=tensorflow_model_server \
  "${SERVING_IMAGE:-docker.io/tensorflow/serving:2.20.0}" --model_base_path=/models/model "${arguments[@]}"
