set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
here=$PWD
source ./{{ env }}
export FLWR_HOME="$here/flwr-home" FEDAUX_CACHE="${FEDAUX_CACHE:-$here/cache}"
export FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1 FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1
[ -z "${LOG:-}" ] || export FEDAUX_LOG="$here/$LOG" FEDAUX_LOG_MB="${LOG_MB:-10}" FEDAUX_LOG_FILES="${LOG_FILES:-5}"
export PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"  # for your own module:function beside the settings
command -v flower-superexec >/dev/null || { echo "activate the environment that fedaux is installed in" >&2; exit 1; }
