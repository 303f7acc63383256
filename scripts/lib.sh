# Shared by ./dev: messages, the cache folder, how many jobs. Sourced, never run.
# shellcheck shell=bash

cache=${GAPLESS_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/gapless}

say() { printf '\033[1m==>\033[0m %s\n' "$*" | strip_colour >&2; }

# Colours only reach a terminal.
strip_colour() {
  if [ -t 2 ]; then cat; else sed 's/\x1b\[[0-9;]*m//g'; fi
}

die() {
  local code=$1
  shift
  printf 'dev: %s\n' "$*" >&2
  exit "$code"
}

have() { command -v "$1" >/dev/null 2>&1; }

# A C++ compilation may take 1.2 GB; more jobs than memory allows would only swap.
jobs_for_machine() {
  if [ -n "${GAPLESS_JOBS:-}" ]; then
    echo "$GAPLESS_JOBS"
    return
  fi
  local cpus by_memory
  cpus=$(nproc)
  by_memory=$(awk '/^MemAvailable:/ { n = int($2 / 1200000); print (n < 1 ? 1 : n) }' /proc/meminfo)
  echo $((cpus < by_memory ? cpus : by_memory))
}
