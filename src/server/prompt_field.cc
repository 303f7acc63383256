#include "server/prompt_field.h"

namespace gapless {

using nlohmann::json;

namespace {

constexpr int32_t kMaxAnswers = 1024;  // prompts x n of one request

bool is_list_of(const json& value, bool (*test)(const json&)) {
  if (!value.is_array()) return false;
  for (const json& item : value) {
    if (!test(item)) return false;
  }
  return true;
}

class PromptReader {
 public:
  PromptReader(FieldReader& fields, const char* field, int32_t vocab_size)
      : fields_(fields), field_(field), vocab_size_(vocab_size) {
    fields.boolean("add_special_tokens", add_special_);
  }

  std::vector<Prompt> read(size_t max_prompts) {
    const json* value = fields_.find(field_);
    if (!value) {
      fail("{} is missing: a string, a list of strings, token ids or a list of token id lists", field_);
    } else if (value->is_string()) {
      add_text(value->get_ref<const std::string&>());
    } else if (value->is_array()) {
      add_list(*value, max_prompts);
    } else {
      fail("{} must be a string or an array, got {}", field_, describe_json(*value));
    }
    return std::move(prompts_);
  }

 private:
  template <class... Args>
  void fail(fmt::format_string<Args...> format, Args&&... args) {
    fields_.fail(field_, fmt::format(format, std::forward<Args>(args)...));
  }

  void add_list(const json& list, size_t max_prompts) {
    const bool texts = is_list_of(list, [](const json& v) { return v.is_string(); });
    const bool lists = is_list_of(list, [](const json& v) { return v.is_array(); });
    if (list.empty() || (!texts && !lists)) return add_ids(list, field_);
    if (list.size() > max_prompts)
      return fail("{} has {} entries, at most {} are allowed", field_, list.size(), max_prompts);
    for (size_t i = 0; i < list.size() && !fields_.failed(); i++) {
      if (texts) {
        add_text(list[i].get_ref<const std::string&>());
      } else {
        add_ids(list[i], fmt::format("{}[{}]", field_, i));
      }
    }
  }

  void add_text(const std::string& text) {
    prompts_.emplace_back(TextPrompt{.text = text, .add_special = add_special_, .parse_special = true});
  }

  // An empty list of ids is the empty prompt: BOS alone where the model has one, refused by the engine where
  // not.
  void add_ids(const json& list, const std::string& name) {
    if (list.empty()) return add_text("");
    std::vector<int32_t> ids;
    ids.reserve(list.size());
    for (size_t i = 0; i < list.size(); i++) {
      Result<int64_t> id = integer_value(fmt::format("{}[{}]", name, i), list[i], 0, vocab_size_ - 1);
      if (!id.is_ok()) return fields_.fail(field_, id.status().message());
      ids.push_back(static_cast<int32_t>(*id));
    }
    prompts_.emplace_back(std::move(ids));
  }

  FieldReader& fields_;
  const char* const field_;
  const int32_t vocab_size_;
  bool add_special_ = true;
  std::vector<Prompt> prompts_;
};

}  // namespace

std::vector<Prompt> read_prompts(FieldReader& fields, const char* field, size_t max_prompts,
                                 int32_t vocab_size) {
  return PromptReader(fields, field, vocab_size).read(max_prompts);
}

void limit_answers(FieldReader& fields, size_t prompts, int32_t n, const char* field) {
  if (fields.failed() || int64_t(prompts) * n <= kMaxAnswers) return;
  fields.fail(field,
              fmt::format("{} prompts x {} {} are more than {} answers", prompts, field, n, kMaxAnswers));
}

}  // namespace gapless
