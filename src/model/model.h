// A model: it appends the operations of a forward pass to a step. It knows nothing of requests, batches or
// sampling.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "device/device.h"
#include "kernels/ops.h"

namespace gapless {

// The numbers of an architecture that the layers above need.
struct ModelConfig {
  std::string architecture;  // "llama", "gemma3", "sim"
  std::string name;          // general.name of the file
  int32_t n_layers = 0, dim = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0, ffn_dim = 0, vocab_size = 0;
  int32_t context_length = 0;
  int32_t embedding_dim = 0;  // elements of a hidden state; 0: the model gives none
  int64_t max_kv_tokens = 0;  // what fits the machine that a simulated model stands for; 0: memory decides
  int64_t n_params = 0;
  std::string quantisation;  // "Q4_1": the type of most weight bytes

  // Bytes of KV cache per token, all layers.
  int64_t kv_bytes_per_token(KvDtype dtype) const {
    return int64_t(n_layers) * 2 * n_kv_heads * kv_row_bytes(dtype, head_dim);
  }
};

// The rows of a step, in device memory. Written on the device by the step's first op (`take`), so only
// pointers are known when the step is built; max_* bound them.
struct ForwardInputs {
  const int32_t* n_rows;  // tokens in this step
  int32_t max_rows;
  const int32_t* ids;          // [n_rows] token ids, placeholders already resolved
  const int32_t* positions;    // [n_rows] position in the sequence
  const int32_t* slots;        // [n_rows] request slot: row of the page table
  const AttentionTile* tiles;  // [n_tiles]
  const int32_t* n_tiles;
  int32_t max_tiles;
  const int32_t* logit_rows;  // [n_logit_rows] rows whose logits are wanted
  const int32_t* n_logit_rows;
};

// The paged KV cache, all layers. Layer l's arrays start at k + l * layer_stride.
struct KvView {
  std::byte* k;
  std::byte* v;
  int64_t layer_stride;  // bytes
  KvDtype dtype;
  int32_t page_size;
  const int32_t* page_table;
  int64_t ld_page_table;
  KvLayer layer(int32_t l, const ModelConfig& c) const {
    return {k + l * layer_stride, v + l * layer_stride, dtype, c.n_kv_heads, c.head_dim, page_size,
            page_table,           ld_page_table};
  }
};

// Rows of floats in a model's scratch memory, until the next op of the model.
struct HiddenStates {
  const float* rows;
  int64_t ld;
};

// Forward thread only, after construction.
class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelConfig& config() const = 0;
  // Sizes the scratch memory for steps of at most max_rows rows. Call once before forward().
  virtual Status reserve(Device& device, int32_t max_rows) = 0;
  // Appends everything up to the last layer's output; writes K and V of every row.
  virtual void forward(OpList& ops, const OpTable& table, const ForwardInputs& in, const KvView& kv) = 0;
  // Appends the output head for logit rows begin .. begin + cap - 1 of the same step: logits[i][ld], i from
  // 0. ld is a multiple of 16,
  // >= vocab_size rounded up to 16. cap <= the max_rows of reserve().
  virtual void logits(OpList& ops, const OpTable& table, const ForwardInputs& in, int32_t begin, int32_t cap,
                      float* logits, int64_t ld) = 0;
  // Appends the final norm of the logit rows of the same step, of which there are at most in.max_rows: what
  // the output head would read, in float32, row i of logit row i. Not where embedding_dim is 0.
  virtual HiddenStates hidden_states(OpList&, const OpTable&, const ForwardInputs&) {
    CHECK(false, "{} gives no hidden states", config().architecture);
  }
};

}  // namespace gapless
