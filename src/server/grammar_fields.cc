#include "server/grammar_fields.h"

#include <algorithm>
#include <span>

#include "engine/json_shape.h"
#include "server/json_writer.h"

namespace gapless {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

using Kind = GrammarSpec::Kind;

constexpr const char* kAnyObject = R"({"type":"object"})";

GrammarSpec spec_of(Kind kind, const ordered_json& value) {
  return {kind, value.is_string() ? value.get<std::string>() : value.dump()};
}

Result<GrammarSpec> string_spec(Kind kind, const ordered_json& value) {
  if (!value.is_string()) return Status::invalid("it must be a string, got {}", describe_json(json(value)));
  return spec_of(kind, value);
}

// A schema, or the text of one.
Result<GrammarSpec> json_schema(const ordered_json& value) {
  if (!value.is_object() && !value.is_string() && !value.is_boolean())
    return Status::invalid("it must be a JSON schema, got {}", describe_json(json(value)));
  return spec_of(Kind::kJsonSchema, value);
}

Result<GrammarSpec> regex(const ordered_json& value) {
  return string_spec(Kind::kRegex, value);
}

// Both are called a grammar; only one has `::=`.
Result<GrammarSpec> grammar(const ordered_json& value) {
  const bool gbnf = value.is_string() && value.get_ref<const std::string&>().find("::=") != std::string::npos;
  return string_spec(gbnf ? Kind::kGbnf : Kind::kLark, value);
}

Result<GrammarSpec> choice(const ordered_json& value) {
  if (!value.is_array() || value.empty())
    return Status::invalid("it must be a list of strings, got {}",
                           value.is_array() ? "an empty one" : describe_json(json(value)));
  std::string lark = "start:";
  for (const ordered_json& item : value) {
    if (!item.is_string() || item.get_ref<const std::string&>().empty())
      return Status::invalid("it must hold strings that are not empty, got {}", describe_json(json(item)));
    lark += (lark.ends_with(':') ? " " : " | ") + item.dump() + " ";
  }
  return GrammarSpec{Kind::kLark, lark};
}

Result<GrammarSpec> json_object(const ordered_json& value) {
  if (value != true) return Status::invalid("it must be true, got {}", describe_json(json(value)));
  return GrammarSpec{Kind::kJsonSchema, kAnyObject};
}

// OpenAI's {"name", "schema", "strict"}. An answer follows the schema with and without `strict`.
Result<GrammarSpec> named_schema(const ordered_json& value) {
  if (!value.is_object() || !value.contains("schema"))
    return Status::invalid("json_schema must be an object with a schema");
  const json unordered(value);
  FieldReader fields(unordered, "json_schema");
  std::string name;
  bool strict = true;
  fields.string("name", name);
  fields.boolean("strict", strict);
  RETURN_IF_ERROR(fields.status());
  return json_schema(value["schema"]);
}

using Read = Result<GrammarSpec> (*)(const ordered_json& value);
struct Member {
  const char* name;
  Read read;
};

const Member* find_member(std::span<const Member> members, std::string_view name) {
  const auto it = std::ranges::find(members, name, [](const Member& m) { return std::string_view(m.name); });
  return it == members.end() ? nullptr : &*it;
}

// {"type": NAME, NAME: what the type needs}.
Result<GrammarSpec> response_format(const ordered_json& value) {
  static constexpr Member kTypes[] = {
      {"json_schema", named_schema}, {"regex", regex}, {"lark", grammar}, {"grammar", grammar}};
  const std::string type =
      value.is_object() && value.contains("type") && value["type"].is_string() ? value["type"] : "";
  if (type == "json_object") {
    if (value.contains("schema")) return json_schema(value["schema"]);
    return GrammarSpec{Kind::kJsonSchema, kAnyObject};
  }
  const Member* known = find_member(kTypes, type);
  if (!known)
    return Status::invalid(
        "it must be an object whose type is text, json_object, json_schema, regex, lark or grammar");
  if (!value.contains(type)) return Status::invalid("the type {} needs a member {}", type, type);
  return known->read(value[type]);
}

// vLLM's: an object with one of these.
Result<GrammarSpec> structured_outputs(const ordered_json& value) {
  static constexpr Member kMembers[] = {{"json", json_schema},
                                        {"regex", regex},
                                        {"choice", choice},
                                        {"grammar", grammar},
                                        {"json_object", json_object}};
  const Member* found = nullptr;
  if (!value.is_object()) return Status::invalid("it must be an object, got {}", describe_json(json(value)));
  for (const auto& [name, member] : value.items()) {
    if (member.is_null() || member == false) continue;
    const Member* known = find_member(kMembers, name);
    if (!known) return Status::invalid("'{}' is not available", printable(name, 40));
    if (found) return Status::invalid("{} and {} cannot both be given", found->name, name);
    found = known;
  }
  if (!found) return Status::invalid("it must have one of json, regex, choice, grammar, json_object");
  return found->read(value[found->name]);
}

constexpr Member kFields[] = {
    {"response_format", response_format},
    {"structured_outputs", structured_outputs},
    {"guided_json", json_schema},
    {"guided_regex", regex},
    {"guided_choice", choice},
    {"guided_grammar", grammar},
    {"json_schema", json_schema},
    {"regex", regex},
    {"ebnf", grammar},
    {"grammar", grammar},
};

// What would change the language, and cannot.
constexpr const char* kNotAvailable[] = {"guided_whitespace_pattern", "structural_tag"};

bool says_nothing(const std::string& field, const json& value) {
  return field == "response_format" && value.is_object() && value.value("type", json()) == "text";
}

}  // namespace

void read_grammar(FieldReader& fields, const RawMember& raw, GenerateRequest& request) {
  for (const char* field : kNotAvailable)
    if (fields.find(field)) fields.unsupported(field, "see docs/structured.md for what is");
  for (const Member& member : kFields) {
    const json* value = fields.find(member.name);
    if (!value || says_nothing(member.name, *value) || fields.failed()) continue;
    if (request.grammar) {
      return fields.fail(member.name,
                         fmt::format("{} and {} cannot both be given", request.grammar_field, member.name));
    }
    const std::string text = raw(member.name);
    if (const Status status = check_members(shape_of_json(text), member.name); !status.is_ok())
      return fields.fail(member.name, status.message());
    Result<GrammarSpec> spec = member.read(ordered_json::parse(text));
    if (!spec.is_ok())
      return fields.fail(member.name, fmt::format("{}: {}", member.name, spec.status().message()));
    request.grammar = std::move(spec).value();
    request.grammar_field = member.name;
  }
}

void refuse_grammar_fields(FieldReader& fields, const std::string& instead) {
  for (const Member& member : kFields) {
    const json* value = fields.find(member.name);
    if (value && !says_nothing(member.name, *value)) fields.unsupported(member.name, "use " + instead);
  }
  for (const char* field : kNotAvailable)
    if (fields.find(field)) fields.unsupported(field, "use " + instead);
}

}  // namespace gapless
