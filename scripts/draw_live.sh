#!/usr/bin/env bash
# Draws docs/images/live-light.png and live-dark.png in Chromium. Usage: scripts/draw_live.sh [GAPLESS]; then look at them: on a
# busy machine the device has gaps that are not the program's.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh
# shellcheck source=scripts/setup.sh
. scripts/setup.sh
ensure_node
ensure_chromium
ensure_web_node
mkdir -p docs/images
# shellcheck disable=SC2154  # setup.sh sets it
GAPLESS_BINARY=${1:-build/release/gapless} GAPLESS_WEB_NODE=$web_node GAPLESS_CHROMIUM=$(find_chromium) node tests/web/browser/draw_live.mjs
