#include "server/field_reader.h"

#include <limits>

#include "server/json_writer.h"

namespace gapless {

using nlohmann::json;

std::string describe_json(const json& value) {
  switch (value.type()) {
    case json::value_t::null:
      return "null";
    case json::value_t::boolean:
      return value.get<bool>() ? "true" : "false";
    case json::value_t::string:
      return fmt::format("the string \"{}\"", printable(value.get_ref<const std::string&>(), 60));
    case json::value_t::array:
      return "an array";
    case json::value_t::object:
      return "an object";
    default:
      return value.dump();
  }
}

Result<int64_t> integer_value(const std::string& name, const json& value, int64_t min, int64_t max) {
  if (!value.is_number_integer()) {
    return Status::invalid("{} must be an integer, got {}", name, describe_json(value)).with_param(name);
  }
  const bool huge =
      value.is_number_unsigned() && value.get<uint64_t>() > uint64_t(std::numeric_limits<int64_t>::max());
  const int64_t n = huge ? std::numeric_limits<int64_t>::max() : value.get<int64_t>();
  if (huge || n < min || n > max) {
    return Status::invalid("{} must be between {} and {}, got {}", name, min, max, value.dump())
        .with_param(name);
  }
  return n;
}

void FieldReader::fail(const std::string& field, std::string message, std::string error_code) {
  if (failed()) return;
  status_ = Status(StatusCode::kInvalidArgument, std::move(message))
                .with_param(name_of(field))
                .with_error_code(std::move(error_code));
}

void FieldReader::fail(Status status) {
  if (!failed()) status_ = std::move(status);
}

void FieldReader::unsupported(const std::string& field, const std::string& why) {
  fail(field, fmt::format("{} is not supported: {}", name_of(field), why), "unsupported");
}

const json* FieldReader::find(const std::string& field) const {
  const auto it = object_.find(field);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

void FieldReader::boolean(const std::string& field, bool& target) {
  const json* value = find(field);
  if (!value) return;
  if (!value->is_boolean()) {
    return fail(field, fmt::format("{} must be a boolean, got {}", name_of(field), describe_json(*value)));
  }
  target = value->get<bool>();
}

void FieldReader::string(const std::string& field, std::string& target) {
  const json* value = find(field);
  if (!value) return;
  if (!value->is_string()) {
    return fail(field, fmt::format("{} must be a string, got {}", name_of(field), describe_json(*value)));
  }
  target = value->get<std::string>();
}

void FieldReader::number(const std::string& field, NumberRange range, float& target) {
  const json* value = find(field);
  if (!value) return;
  if (!value->is_number()) {
    return fail(field, fmt::format("{} must be a number, got {}", name_of(field), describe_json(*value)));
  }
  const double x = value->get<double>();
  if (!(range.min_excluded ? x > range.min : x >= range.min) || !(x <= range.max)) {
    return fail(field, fmt::format("{} must be {} {} and at most {}, got {}", name_of(field),
                                   range.min_excluded ? "greater than" : "at least", range.min, range.max,
                                   value->dump()));
  }
  target = static_cast<float>(x);
}

std::optional<int64_t> FieldReader::read_integer(const std::string& field, int64_t min, int64_t max) {
  const json* value = find(field);
  if (!value || failed()) return std::nullopt;
  Result<int64_t> n = integer_value(name_of(field), *value, min, max);
  if (n.is_ok()) return *n;
  status_ = n.status();
  return std::nullopt;
}

void FieldReader::integers(const std::string& field, int64_t min, int64_t max, size_t max_items,
                           std::vector<int32_t>& target) {
  const json* value = find(field);
  if (!value || failed()) return;
  if (!value->is_array()) {
    return fail(
        field, fmt::format("{} must be an array of integers, got {}", name_of(field), describe_json(*value)));
  }
  if (value->size() > max_items) {
    return fail(field, fmt::format("{} has {} entries, at most {} are allowed", name_of(field), value->size(),
                                   max_items));
  }
  std::vector<int32_t> items;
  items.reserve(value->size());
  for (size_t i = 0; i < value->size(); i++) {
    Result<int64_t> n = integer_value(fmt::format("{}[{}]", name_of(field), i), (*value)[i], min, max);
    if (!n.is_ok()) return fail(field, n.status().message());
    items.push_back(static_cast<int32_t>(*n));
  }
  target = std::move(items);
}

}  // namespace gapless
