#include "server/common_fields.h"
#include "server/embedding_format.h"
#include "server/generation_plan.h"
#include "server/json_writer.h"
#include "server/prompt_field.h"

namespace gapless {

namespace {

constexpr size_t kMaxInputs = 2048;  // OpenAI's

// The place among `names` of the string that a field has; `target` stays where it is absent.
template <size_t N>
void read_choice(FieldReader& fields, const char* field, const char* const (&names)[N], size_t& target) {
  std::string name = names[target];
  fields.string(field, name);
  for (size_t i = 0; i < N; i++)
    if (name == names[i]) return void(target = i);
  fields.fail(field, fmt::format("{} must be \"{}\", got \"{}\"", field, fmt::join(names, "\" or \""),
                                 printable(name, 40)));
}

void check_dimensions(FieldReader& fields, int32_t embedding_dim) {
  int64_t dimensions = embedding_dim;
  fields.integer("dimensions", 1, INT32_MAX, dimensions);
  if (dimensions == embedding_dim) return;
  fields.unsupported("dimensions", fmt::format("embeddings of this model have {} elements and cannot be cut "
                                               "to {}",
                                               embedding_dim, dimensions));
}

}  // namespace

Result<GenerationPlan> parse_embedding_request(const JsonBody& body, const ModelFacts& model,
                                               const RequestLimits& limits) {
  FieldReader fields(body.root());
  read_model(fields, model, limits.strict_model);
  if (model.embedding_dim == 0) fields.unsupported("model", "it gives no embeddings");
  size_t pooling = size_t(Pooling::kLast), format = 0;
  bool normalize = true;
  read_choice(fields, "encoding_format", {"float", "base64"}, format);
  read_choice(fields, "pooling", {"last", "mean"}, pooling);
  fields.boolean("normalize", normalize);
  check_dimensions(fields, model.embedding_dim);
  if (fields.find("truncate_prompt_tokens"))
    fields.unsupported("truncate_prompt_tokens", "an input is never cut");
  GenerateRequest request;
  read_cache_salt(fields, request);
  if (const nlohmann::json* input = fields.find("input"); input && *input == nlohmann::json::array())
    fields.fail("input", "input is an empty list: at least one text is needed");
  std::vector<Prompt> inputs = read_prompts(fields, "input", kMaxInputs, model.vocab_size);
  RETURN_IF_ERROR(fields.status());

  request.max_tokens = 0;
  request.embedding = Pooling(pooling);
  GenerationPlan plan;
  plan.prompt_field = "input";
  plan.id_prefix = "embd-";
  plan.format = std::make_unique<EmbeddingFormat>(format == 1, normalize);
  for (Prompt& input : inputs) {
    plan.requests.push_back(request);
    plan.requests.back().prompt = std::move(input);
  }
  return plan;
}

}  // namespace gapless
