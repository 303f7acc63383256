#!/usr/bin/env bash
# Builds the layers up to the cache, and the sampler, for arm64 and runs their tests under qemu: the NEON kernels must give the reference's bits, and a CPU
# without the instructions they need must fall back to the plain ones. The libraries are used as headers only, so Debian's own packages are enough.
#   scripts/arm64.sh [GTEST-FLAGS]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh
# shellcheck source=scripts/setup.sh
. scripts/setup.sh

ensure_packages g++-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static googletest libfmt-dev libspdlog-dev nlohmann-json3-dev
out=build/arm64
mkdir -p $out/include
for library in fmt spdlog nlohmann; do ln -sfn "/usr/include/$library" "$out/include/$library"; done
gtest=/usr/src/googletest/googletest
compiler=aarch64-linux-gnu-g++
have ccache && compiler="ccache $compiler"

# -O2 for the files with vector bodies, as in src/kernels/CMakeLists.txt.
flags="-std=c++20 -O1 -ffp-contract=off -Wall -Wextra -Werror -DGAPLESS_NEON_KERNELS -DFMT_HEADER_ONLY -DSPDLOG_FMT_EXTERNAL -DGTEST_HAS_PTHREAD=1"
flags+=" -DGAPLESS_TEST_DATA='\"$PWD/tests/data\"' -Isrc -isystem $out/include -isystem $gtest/include -I$gtest"
neon_flags="-O2 -march=armv8.2-a+dotprod -fno-schedule-insns"

sources=$(find src/base src/device src/kernels src/sampling src/model src/cache -name '*.cc' ! -name '*avx*' ! -name '*_main.cc' ! -name real_model_test.cc | sort)
{
  objects=
  for source in $sources "$gtest/src/gtest-all.cc" "$gtest/src/gtest_main.cc"; do
    object=$out/${source#/}
    object=${object%.cc}.o
    mkdir -p "$(dirname "$object")"
    objects+=" $object"
    own=
    case $source in */neon_*) own=$neon_flags ;; esac
    printf '%s: %s\n\t%s %s -MMD -c %s -o %s\n' "$object" "$source" "$compiler" "$flags $own" "$source" "$object"
  done
  printf '%s/tests:%s\n\taarch64-linux-gnu-g++ %s -lpthread -o %s/tests\n-include %s\n' "$out" "$objects" "$objects" "$out" "${objects//.o/.d}"
} >$out/Makefile
say "building $(wc -l <<<"$sources") files for arm64"
make -s -j "$(jobs_for_machine)" -f $out/Makefile $out/tests
objects=("$out"/src/kernels/cpu/*.o)
cmake -DNM=aarch64-linux-gnu-nm "-DOBJECTS=$(IFS=';' && echo "${objects[*]}")" -P src/kernels/cpu/check_symbols.cmake

run_under_qemu() {  # NAME CPU BEST-ISA [FLAGS]
  say "running the tests on an emulated $2"
  mkdir -p "build/test-results/arm64_$1"
  GAPLESS_EXPECT_ISA=$3 GTEST_OUTPUT=xml:build/test-results/arm64_$1/ GTEST_BRIEF=1 \
    qemu-aarch64-static -cpu "$2" -L /usr/aarch64-linux-gnu $out/tests "${@:4}"
}
# One test starts its program again, which an emulated one cannot.
run_under_qemu neon max neon '--gtest_filter=-KnownFailures.A_OVL_2_NegativeIdsNeverReachAPenaltyTable' "$@"
run_under_qemu plain cortex-a53 reference '--gtest_filter=Isa.*'
