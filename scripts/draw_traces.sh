#!/usr/bin/env bash
# Draws docs/trace-normal.svg and docs/trace-overlap.svg: consecutive decode steps of a server in both loops, the same load on the
# same simulated device. Usage: scripts/draw_traces.sh [GAPLESS] [DEVICE] [REQUESTS]; then look at the two reports it prints.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
gapless=${1:-build/release/gapless}
device=${2:-sim:h100-llama3.2-1b}
requests=${3:-64}
work=$(mktemp -d)
server=
cleanup() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT

draw() {
  local loop=$1
  shift
  "$gapless" serve --device "$device" --port 0 --port-file "$work/port" "$@" 2>"$work/log" &
  server=$!
  for _ in $(seq 100); do
    [ -s "$work/port" ] && curl -sf "http://127.0.0.1:$(cat "$work/port")/ready" >/dev/null && break
    kill -0 "$server" 2>/dev/null || { cat "$work/log" >&2 && exit 1; }
    sleep 0.1
  done
  local url
  url=http://127.0.0.1:$(cat "$work/port")
  "$gapless" bench serve --url "$url" --concurrency "$requests" --requests "$requests" --prompt-tokens 32 --max-tokens 1000 >/dev/null
  curl -sf "$url/trace" >"$work/$loop.json"
  kill "$server"
  wait "$server" || true
  server=
  rm "$work/port"
  printf '\n%s loop\n' "$loop"
  "$gapless" trace "$work/$loop.json"
  "$gapless" trace "$work/$loop.json" --svg "docs/trace-$loop.svg"
}

draw normal --disable-overlap-schedule
draw overlap
