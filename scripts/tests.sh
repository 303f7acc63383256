# The test suite. Sourced by ./dev.
# shellcheck shell=bash

cmd_test() {
  build_targets release all
  ctest --test-dir build/release --output-on-failure -L quick
}
