# Configure and build a preset. Sourced by ./dev.
# shellcheck shell=bash

presets=(release dev clang asan tsan)

# Once for each preset: Ninja reconfigures by itself when a CMake file changes.
configure() {
  local preset=$1 known=no name
  for name in "${presets[@]}"; do [ "$name" != "$preset" ] || known=yes; done
  [ $known = yes ] || die 2 "unknown preset '$preset': ${presets[*]}"
  ensure_build_tools
  [ ! -f "build/$preset/build.ninja" ] || return 0
  say "configuring build/$preset"
  cmake --preset "$preset" --log-level=WARNING >&2 || die 1 "CMake could not configure build/$preset"
}

# build_targets PRESET TARGET...
build_targets() {
  local preset=$1
  shift
  configure "$preset"
  (
    # Two builds in one folder would delete each other's files.
    if ! flock -n 9; then
      say "another ./dev is building $preset: waiting for it"
      flock 9
    fi
    say "building $preset: $*"
    NINJA_STATUS="[$preset %f/%t %es] " ninja -C "build/$preset" -j "$(jobs_for_machine)" "$@" >&2 9>&-
  ) 9>"build/$preset/.lock" || die 1 "the build of $preset failed"
}
