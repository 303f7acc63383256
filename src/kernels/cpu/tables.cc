#include "kernels/cpu/tables.h"

#include "kernels/cpu/attention_op.h"
#include "kernels/cpu/matmul_op.h"
#include "kernels/cpu/row_ops.h"
#include "kernels/op_work.h"

namespace gapless {
namespace {

using namespace cpu;

#if defined(GAPLESS_X86_KERNELS)
struct Avx2 {
  static constexpr const MatmulBodies& kMatmul = kAvx2Matmul;
  static constexpr const RowBodies& kRows = kAvx2Rows;
  static constexpr const AttentionBodies& kAttention = kAvx2Attention;
};
struct Avx512 {
  static constexpr const MatmulBodies& kMatmul = kAvx512Matmul;
  static constexpr const RowBodies& kRows = kAvx512Rows;
  static constexpr const AttentionBodies& kAttention = kAvx512Attention;
};
#endif
#if defined(GAPLESS_NEON_KERNELS)
struct Neon {
  static constexpr const MatmulBodies& kMatmul = kNeonMatmul;
  static constexpr const RowBodies& kRows = kNeonRows;
  static constexpr const AttentionBodies& kAttention = kNeonAttention;
};
#endif

template <class Set>
constexpr OpTable make_table(const char* name) {
  return {
      name,
      [](OpList& ops, const EmbedParams& p) { ops.push<embed_chunks, embed_run, embed_work>("embed", p); },
      [](OpList& ops, const RmsNormParams& p) {
        ops.push<rms_norm_chunks, rms_norm_run<Set>, rms_norm_work>("rms_norm", p);
      },
      [](OpList& ops, const MatmulParams& p) {
        ops.push<matmul_chunks, matmul_run<Set>, matmul_work>("matmul", p, p.label);
      },
      [](OpList& ops, const RopeTableParams& p) {
        ops.push<rope_table_chunks, rope_table_run, rope_table_work>("rope_table", p);
      },
      [](OpList& ops, const RopeKvParams& p) {
        ops.push<rope_kv_chunks, rope_kv_run<Set>, rope_kv_work>("rope_kv", p);
      },
      [](OpList& ops, const AttentionParams& p) {
        ops.push<attention_chunks, attention_run<Set>, attention_work>("attention", p);
      },
      [](OpList& ops, const GatedActivationParams& p) {
        ops.push<gated_chunks, gated_run<Set>, gated_activation_work>("gated_activation", p);
      }};
}

}  // namespace

#if defined(GAPLESS_X86_KERNELS)
const OpTable& avx2_op_table() {
  static constexpr OpTable kTable = make_table<Avx2>("avx2");
  return kTable;
}
const OpTable& avx512_op_table() {
  static constexpr OpTable kTable = make_table<Avx512>("avx512");
  return kTable;
}
#endif
#if defined(GAPLESS_NEON_KERNELS)
const OpTable& neon_op_table() {
  static constexpr OpTable kTable = make_table<Neon>("neon");
  return kTable;
}
#endif

}  // namespace gapless
