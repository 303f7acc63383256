#!/usr/bin/env bash
# Builds the layers up to the kernels, and the sampler, for arm64 and runs their tests under qemu: the plain kernels and the CPU device must be right on a
# CPU without x86's instructions. The libraries are used as headers only, so Debian's own packages are enough.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh
# shellcheck source=scripts/setup.sh
. scripts/setup.sh

ensure_packages g++-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static googletest libfmt-dev libspdlog-dev nlohmann-json3-dev
out=build/arm64
mkdir -p $out/include
for library in fmt spdlog; do ln -sfn "/usr/include/$library" "$out/include/$library"; done
gtest=/usr/src/googletest/googletest

flags=(-std=c++20 -O1 -ffp-contract=off -DFMT_HEADER_ONLY -DSPDLOG_FMT_EXTERNAL -DGTEST_HAS_PTHREAD=1
  "-DGAPLESS_TEST_DATA=\"$PWD/tests/data\"" -Isrc -isystem "$out/include" -isystem "$gtest/include")

compile() {  # SOURCE OBJECT; only when the source or a header is newer
  [ "$2" -nt "$1" ] && [ -z "$(find src -name '*.h' -newer "$2" -print -quit)" ] && return 0
  mkdir -p "$(dirname "$2")"
  aarch64-linux-gnu-g++ "${flags[@]}" "${@:3}" -c "$1" -o "$2" || exit 255
}


objects=()
sources=$(find src/base src/device src/kernels src/sampling -name '*.cc' ! -name '*avx*' ! -path 'src/kernels/cpu/tables.cc' | sort)
say "building $(wc -l <<<"$sources") files for arm64"
for source in $sources; do
  object=$out/${source%.cc}.o
  objects+=("$object")
  compile "$source" "$object"
done
for source in gtest-all gtest_main; do
  objects+=("$out/$source.o")
  compile "$gtest/src/$source.cc" "$out/$source.o" "-I$gtest"
done
aarch64-linux-gnu-g++ "${objects[@]}" -lpthread -o $out/tests
say "running them under qemu"
mkdir -p build/test-results/arm64
GTEST_OUTPUT=xml:build/test-results/arm64/ GTEST_BRIEF=1 qemu-aarch64-static -L /usr/aarch64-linux-gnu $out/tests "$@"
