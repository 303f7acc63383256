// Speed of attention on the real CPU stream: what `gapless bench attention` measures.
#pragma once

#include <vector>

#include "apps/op_timer.h"
#include "kernels/ops.h"

namespace gapless {

// `sequences` sequences of `context` positions each, of which a step computes the last `rows`.
struct AttentionShape {
  KvDtype dtype;
  int32_t n_heads, n_kv_heads, head_dim;
  int32_t sequences, rows, context;
};

struct AttentionSpeed {
  double seconds;  // of one op, with what the stream needs around it
  OpWork work;     // as attention_work() counts
};

// One piece of memory for the K and V of all measurements. Blocks; one thread at a time.
class AttentionBench {
 public:
  // Both must outlive it. chunks: AttentionSplit's.
  AttentionBench(OpTimer& timer, const OpTable& table, int32_t chunks)
      : timer_(timer), table_(table), chunks_(chunks) {}
  // Before the first measurement: of any of these. An error if there is no memory.
  Status reserve(const std::vector<AttentionShape>& shapes);

  // Each op reads the next of as many copies of K and V as exceed the last-level cache, one per layer of a
  // model, whose pages of 16 lie in random order.
  AttentionSpeed measure(const AttentionShape& shape);

 private:
  struct Operands;

  OpTimer& timer_;
  const OpTable& table_;
  int32_t chunks_;
  Buffer kv_, split_;
};

}  // namespace gapless
