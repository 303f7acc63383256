// Reads the fields of a JSON object strictly: a wrong type or a value out of range is an error that names the
// field, the value and the limit; null is the same as absent; unknown fields are never looked at. The first
// error is kept, later reads do nothing.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace gapless {

struct NumberRange {
  double min, max;
  bool min_excluded = false;
};

class FieldReader {
 public:
  // path: how the object is called in messages, "" for the body itself.
  explicit FieldReader(const nlohmann::json& object, std::string path = "")
      : object_(object), path_(std::move(path)) {}

  const Status& status() const { return status_; }
  bool failed() const { return !status_.is_ok(); }
  // Keeps the first error only.
  void fail(const std::string& field, std::string message, std::string error_code = "");
  void fail(Status status);
  void unsupported(const std::string& field, const std::string& why);

  // nullptr: absent or null.
  const nlohmann::json* find(const std::string& field) const;

  // These leave the target alone where the field is absent.
  void boolean(const std::string& field, bool& target);
  void string(const std::string& field, std::string& target);
  void number(const std::string& field, NumberRange range, float& target);
  template <class Int>
  void integer(const std::string& field, int64_t min, int64_t max, Int& target) {
    if (const auto value = read_integer(field, min, max)) target = static_cast<Int>(*value);
  }
  template <class Int>
  void integer(const std::string& field, int64_t min, int64_t max, std::optional<Int>& target) {
    if (const auto value = read_integer(field, min, max)) target = static_cast<Int>(*value);
  }
  // A list of integers in [min, max].
  void integers(const std::string& field, int64_t min, int64_t max, size_t max_items,
                std::vector<int32_t>& target);

  std::string name_of(const std::string& field) const { return path_.empty() ? field : path_ + "." + field; }

 private:
  std::optional<int64_t> read_integer(const std::string& field, int64_t min, int64_t max);

  const nlohmann::json& object_;
  const std::string path_;
  Status status_;
};

// "a string", "an array", ... and for numbers the value: what a message says was seen.
std::string describe_json(const nlohmann::json& value);
// An integer in [min, max], or the error. `name`: the field's full name. 2.0 is not an integer.
Result<int64_t> integer_value(const std::string& name, const nlohmann::json& value, int64_t min, int64_t max);

}  // namespace gapless
