#include "kernels/isa.h"

#if defined(GAPLESS_X86_KERNELS)
#include <cpuid.h>
#elif defined(GAPLESS_NEON_KERNELS)
#include <sys/auxv.h>
#endif

#include <vector>

#include "kernels/cpu/tables.h"
#include "kernels/reference/reference.h"

namespace gapless {
namespace {

struct Feature {
  const char* name;
  bool present;
};

#if defined(GAPLESS_X86_KERNELS)
// Leaf 1, ECX bit 29. clang's probe does not know this one.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c >> 29 & 1) != 0;
}

// The compiler's probe reads cpuid and, for the wide registers, XCR0: whether the operating system saves
// them.
struct Features {
  Feature avx2, fma, f16c, avx512f, avx512bw, avx512vl, avx512dq, avx512vnni;
  static Features detect() {
    __builtin_cpu_init();
    return {{"avx2", __builtin_cpu_supports("avx2") != 0},
            {"fma", __builtin_cpu_supports("fma") != 0},
            {"f16c", has_f16c()},
            {"avx512f", __builtin_cpu_supports("avx512f") != 0},
            {"avx512bw", __builtin_cpu_supports("avx512bw") != 0},
            {"avx512vl", __builtin_cpu_supports("avx512vl") != 0},
            {"avx512dq", __builtin_cpu_supports("avx512dq") != 0},
            {"avx512vnni", __builtin_cpu_supports("avx512vnni") != 0}};
  }
  bool has_avx2() const { return avx2.present && fma.present && f16c.present; }
  bool has_avx512() const {
    return has_avx2() && avx512f.present && avx512bw.present && avx512vl.present && avx512dq.present &&
           avx512vnni.present;
  }
  std::vector<Feature> all() const {
    return {avx2, fma, f16c, avx512f, avx512bw, avx512vl, avx512dq, avx512vnni};
  }
};
#elif defined(GAPLESS_NEON_KERNELS)
struct Features {
  Feature neon, dotprod;
  static Features detect() {
    const unsigned long capabilities = getauxval(AT_HWCAP);
    return {{"neon", (capabilities & HWCAP_ASIMD) != 0}, {"dotprod", (capabilities & HWCAP_ASIMDDP) != 0}};
  }
  bool has_neon() const { return neon.present && dotprod.present; }
  std::vector<Feature> all() const { return {neon, dotprod}; }
};
#else
struct Features {
  static Features detect() { return {}; }
  std::vector<Feature> all() const { return {}; }
};
#endif

}  // namespace

const OpTable* op_table(Isa isa) {
#if defined(GAPLESS_X86_KERNELS)
  static const Features features = Features::detect();
  if (isa == Isa::kAvx512) return features.has_avx512() ? &avx512_op_table() : nullptr;
  if (isa == Isa::kAvx2) return features.has_avx2() ? &avx2_op_table() : nullptr;
#elif defined(GAPLESS_NEON_KERNELS)
  static const Features features = Features::detect();
  if (isa == Isa::kNeon) return features.has_neon() ? &neon_op_table() : nullptr;
#endif
  return isa == Isa::kReference ? &reference_op_table() : nullptr;
}

Isa best_isa() {
  Isa best = Isa::kReference;
  for (Isa isa : kIsas)
    if (op_table(isa)) best = isa;
  return best;
}

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::kReference:
      return "reference";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kNeon:
      return "neon";
  }
  CHECK(false, "isa {}", int(isa));
}

std::string cpu_features() {
  std::string names;
  for (const Feature& feature : Features::detect().all())
    if (feature.present) names += names.empty() ? feature.name : std::string(" ") + feature.name;
  return names.empty() ? "none of the vector extensions that kernels use" : names;
}

Result<Isa> parse_isa(std::string_view name) {
  if (name == "auto") return best_isa();
  std::string usable;
  for (Isa isa : kIsas) {
    if (!op_table(isa)) {
      if (name == isa_name(isa))
        return Status::invalid("--isa {}: this CPU cannot run it; it has: {}", name, cpu_features());
      continue;
    }
    if (name == isa_name(isa)) return isa;
    usable += std::string(", ") + isa_name(isa);
  }
  return Status::invalid("--isa '{}' is not known; this CPU can run: auto{} (it has: {})", name, usable,
                         cpu_features());
}

}  // namespace gapless
