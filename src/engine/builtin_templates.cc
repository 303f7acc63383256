#include "engine/builtin_templates.h"

#include <algorithm>

namespace gapless {
namespace {

// ChatML: Qwen, SmolLM, Yi and many fine-tunes.
constexpr std::string_view kChatml = R"({%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%})";

constexpr std::string_view kLlama2 = R"({%- set ns = namespace(system='') -%}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{%- set ns.system = '<<SYS>>\n' + message.content + '\n<</SYS>>\n\n' -%}
{%- elif message.role == 'user' -%}
{{- bos_token + '[INST] ' + ns.system + message.content | trim + ' [/INST]' -}}
{%- set ns.system = '' -%}
{%- else -%}
{{- ' ' + message.content | trim + ' ' + eos_token -}}
{%- endif -%}
{%- endfor -%})";

constexpr std::string_view kLlama3 = R"({{- bos_token -}}
{%- for message in messages -%}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content | trim + '<|eot_id|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
{%- endif -%})";

// Gemma has no system turn: its text goes before the first user message.
constexpr std::string_view kGemma = R"({{- bos_token -}}
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{%- set ns.system = message.content | trim + '\n\n' -%}
{%- else -%}
{{- '<start_of_turn>' + ('model' if message.role == 'assistant' else 'user') + '\n' -}}
{{- ns.system + message.content | trim + '<end_of_turn>\n' -}}
{%- set ns.system = '' -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<start_of_turn>model\n' -}}
{%- endif -%})";

constexpr std::string_view kMistral = R"({{- bos_token -}}
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{%- set ns.system = message.content + '\n\n' -%}
{%- elif message.role == 'user' -%}
{{- '[INST] ' + ns.system + message.content + ' [/INST]' -}}
{%- set ns.system = '' -%}
{%- else -%}
{{- ' ' + message.content + eos_token -}}
{%- endif -%}
{%- endfor -%})";

constexpr std::string_view kPhi3 = R"({%- for message in messages -%}
{{- '<|' + message.role + '|>\n' + message.content + '<|end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|assistant|>\n' -}}
{%- endif -%})";

constexpr std::string_view kZephyr = R"({%- for message in messages -%}
{{- '<|' + message.role + '|>\n' + message.content + eos_token + '\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|assistant|>\n' -}}
{%- endif -%})";

// No control tokens at all: for base models, which follow a transcript.
constexpr std::string_view kPlain = R"({%- for message in messages -%}
{{- message.role | capitalize + ': ' + message.content | trim + '\n\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- 'Assistant:' -}}
{%- endif -%})";

constexpr BuiltinTemplate kTable[] = {
    {"chatml", kChatml},   {"gemma", kGemma}, {"llama2", kLlama2}, {"llama3", kLlama3},
    {"mistral", kMistral}, {"phi3", kPhi3},   {"plain", kPlain},   {"zephyr", kZephyr},
};

}  // namespace

std::span<const BuiltinTemplate> builtin_template_table() {
  return kTable;
}

const BuiltinTemplate* find_builtin_template(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTable), std::end(kTable),
                                   [&](const auto& entry) { return entry.name == name; });
  return found == std::end(kTable) ? nullptr : found;
}

}  // namespace gapless
