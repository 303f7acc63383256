#!/usr/bin/env bash
# Draws the pictures in docs/images: every view of the page, on a desktop and a phone, light and dark, before real servers.
# Look at them afterwards: what they show is what docs/page.md tells.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh
# shellcheck source=scripts/setup.sh
. scripts/setup.sh

ensure_web_node
ensure_chromium
gapless=${1:-$PWD/build/release/gapless}
smollm2=$(./dev model smollm2)
mkdir -p docs/images
GAPLESS_WEB_NODE=$web_node GAPLESS_CHROMIUM=$(find_chromium) GAPLESS_BINARY=$gapless GAPLESS_SMOLLM2=$smollm2 \
  node tests/web/browser/support/screenshots.mjs docs/images
