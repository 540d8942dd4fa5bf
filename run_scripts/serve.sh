#!/usr/bin/env bash
# Serves the versions of an exported model over gRPC and REST, with the files that are beside them:
#
#   bash run_scripts/serve.sh EXPORT/NAME [--grpc_port 8500] [--rest_port 8501] [--enable_batching]
#
# Runs the tensorflow_model_server on the PATH, or else the official image by docker or podman. Either listens on all of
# the machine's addresses, and goes over to a new version when it appears. A version that was exported again with
# --overwrite is not a new one: a server that has loaded it keeps what it loaded until it is restarted.
#
#   --grpc_port        port of the gRPC API (default: 8500)
#   --rest_port        port of the REST API and of Prometheus' metrics (default: 8501)
#   --enable_batching  join requests that arrive together, as batching_parameters.txt says; one that is refused then
#                      fails those that it was joined with, and clients of the signature "tokens" must all send the
#                      same length
#   SERVING_IMAGE      environment variable: the image (default: docker.io/tensorflow/serving:2.20.0)
#
# Clients ask for the model by the name in models.config, the folder's when it was exported:
#
#   bert-flow query --target http://localhost:8501 --model EXPORT/NAME "A small boat crosses the lake."
#
# docs/serving.md tells of signatures, requests without this project, and errors.
set -euo pipefail

stop() {
  printf 'error: %s\n' "$*" >&2
  exit 2
}

is_port() { [[ $1 =~ ^[0-9]{1,5}$ ]] && ((10#$1 >= 1 && 10#$1 <= 65535)); }

usage="expected serve.sh EXPORT/NAME [--grpc_port PORT] [--rest_port PORT] [--enable_batching]"
folder="" grpc_port=8500 rest_port=8501 batching=""
while (($#)); do
  [[ $1 != --*_port=* ]] || set -- "${1%%=*}" "${1#*=}" "${@:2}"
  case $1 in
    --help | -h)
      sed -n -e '1d' -e '/^#/!Q' -e 's/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    --grpc_port | --rest_port)
      (($# > 1)) && is_port "$2" || stop "$1: found ${2:-nothing}, expected a port from 1 to 65535"
      printf -v "${1#--}" '%s' "$2"
      shift
      ;;
    --enable_batching) batching=yes ;;
    -*) stop "unknown flag $1, $usage" ;;
    *)
      [[ -z $folder ]] || stop "found $1 after $folder, $usage"
      folder=$1
      ;;
  esac
  shift
done
[[ -n $folder ]] || stop "no folder given, $usage"
((10#$grpc_port != 10#$rest_port)) || stop "--rest_port: found $rest_port, expected another port than --grpc_port"

[[ -d $folder ]] || stop "$folder: is not a folder, expected an exported model's"
# CDPATH would print where it went.
folder=$(CDPATH="" cd -- "$folder" && pwd) || stop "$folder: cannot be entered, expected an exported model's folder"
version=""
for path in "$folder"/[0-9]*/saved_model.pb; do
  name=${path%/*} name=${name##*/}
  [[ $name == *[!0-9]* ]] || ((10#$name < 10#${version:-0})) || version=$name
done
[[ -n $version ]] || stop "$folder: holds no version such as $folder/1/saved_model.pb, expected an exported model's folder"
needed=(models.config monitoring.config ${batching:+batching_parameters.txt})
for name in "${needed[@]}"; do
  [[ -r $folder/$name ]] || stop "$folder/$name: cannot be read, expected the file that an export writes there"
done

# What a full disk or an interrupted copy left of a version would be served, or end the server with many lines.
if [[ -e $folder/$version/assets.extra/SHA256SUMS ]] && command -v sha256sum >/dev/null; then
  found=$(cd -- "$folder/$version" && LC_ALL=C sha256sum -c assets.extra/SHA256SUMS 2>/dev/null | sed '/: OK$/d') || {
    found=${found//$'\n'/, }
    stop "$folder/$version: found ${found:-no digest} (assets.extra/SHA256SUMS), expected the files that the export wrote; copy or export them again"
  }
fi

# The model's name is the one in models.config: the folder may have been renamed since.
config=$(<"$folder/models.config")
pattern="base_path *: *[\"']/models/([A-Za-z0-9_.-]+)/?[\"']"
[[ $config =~ $pattern ]] || stop "$folder/models.config: found no base_path: \"/models/NAME\", expected the one that an export writes"
base_path=${BASH_REMATCH[0]} model=${BASH_REMATCH[1]}

if command -v tensorflow_model_server >/dev/null; then
  where=$folder
  # models.config has the path in a container, so this server gets a copy with the folder's own, escaped for a protobuf
  # text. The copy has no name by the time it is read, and leaves nothing behind however the server ends.
  path=${folder//\\/\\\\} path=${path//\"/\\\"}
  copy=$(mktemp) || stop "${TMPDIR:-/tmp}: cannot be written to, expected a place for a temporary file"
  printf '%s\n' "${config/"$base_path"/"base_path: \"$path\""}" >"$copy"
  exec 3<"$copy"
  rm -f "$copy"
  command=(tensorflow_model_server --port="$grpc_port" --rest_api_port="$rest_port" --model_config_file=/dev/fd/3)
else
  where=/models/$model
  runner=$(command -v docker || command -v podman) ||
    stop "neither tensorflow_model_server nor docker nor podman is on the PATH; install one: https://www.tensorflow.org/tfx/serving/setup or https://docs.docker.com/engine/install"
  [[ $folder != *[,\"]* ]] || stop "$folder: found a comma or a quotation mark, expected a path without, to mount it into a container"
  # --init: as process 1 the server would not heed Ctrl-C. The image's own start script would not pass it on either.
  command=("$runner" run --rm --init --publish="$grpc_port:8500" --publish="$rest_port:8501"
    --mount="type=bind,source=$folder,target=$where,readonly" --entrypoint=tensorflow_model_server
    "${SERVING_IMAGE:-docker.io/tensorflow/serving:2.20.0}"
    --port=8500 --rest_api_port=8501 --model_config_file="$where/models.config")
fi
command+=(--monitoring_config_file="$where/monitoring.config")
[[ -z $batching ]] || command+=(--enable_batching --batching_parameters_file="$where/batching_parameters.txt")
exec "${command[@]}"
