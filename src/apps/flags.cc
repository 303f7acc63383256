#include "apps/flags.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <sstream>

namespace gapless {

Result<int64_t> parse_bytes(const std::string& text) {
  int64_t number = 0;
  const char* end = text.data() + text.size();
  auto [rest, error] = std::from_chars(text.data(), end, number);
  int shift = 0;
  if (error == std::errc() && rest != end) {
    switch (*rest++) {
      case 'k':
      case 'K':
        shift = 10;
        break;
      case 'm':
      case 'M':
        shift = 20;
        break;
      case 'g':
      case 'G':
        shift = 30;
        break;
      default:
        error = std::errc::invalid_argument;
    }
    if (rest != end && *rest == 'B') ++rest;
  }
  if (error != std::errc() || rest != end || number < 0 || number > (INT64_MAX >> shift)) {
    return Status::invalid("'{}' is not a size: a number of bytes, or one with K, M or G (512M, 2G)", text);
  }
  return number << shift;
}

CLI::Validator byte_size() {
  return CLI::Validator([](std::string& text) { return parse_bytes(text).status().message(); }, "", "size");
}

CLI::Validator one_of(std::vector<std::string> names) {
  return CLI::Validator(
      [names = std::move(names)](std::string& text) {
        if (std::find(names.begin(), names.end(), text) != names.end()) return std::string();
        const std::string near = nearest_word(text, names);
        return fmt::format("'{}' is none of {}{}", text, fmt::join(names, ", "),
                           near.empty() ? "" : fmt::format(": did you mean {}?", near));
      },
      "", "name");
}

CLI::Validator not_empty() {
  return CLI::Validator(
      [](std::string& text) {
        return std::string(text.empty() ? "the value is empty; leave the flag out to go without" : "");
      },
      "", "text");
}

CLI::Option* toggle(CLI::App& app, const std::string& name, bool& target, const std::string& default_text,
                    const std::string& why) {
  return app.add_flag(name, target, why)->default_str(default_text);
}

namespace {

// "--a,!--no-a" is shown as "--a, --no-a".
std::string shown_names(const CLI::Option& option) {
  if (option.get_positional()) return option.get_name(true);
  std::string names;
  for (const std::string& name : option.get_snames()) names += (names.empty() ? "-" : ", -") + name;
  for (const std::string& name : option.get_lnames()) names += (names.empty() ? "--" : ", --") + name;
  return names;
}

std::vector<std::string> wrap(const std::string& text, size_t width) {
  std::vector<std::string> lines(1);
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > width) lines.emplace_back();
    if (!lines.back().empty()) lines.back() += ' ';
    lines.back() += word;
  }
  return lines;
}

std::vector<std::string> long_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

}  // namespace

std::vector<FlagRow> flag_rows(const CLI::App& app) {
  std::vector<FlagRow> rows;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    const bool takes_value = option->get_items_expected_max() > 0;
    const std::string type =
        option->get_type_name();  // "N:INT in [0 - 10]": the check is for the error message
    rows.push_back({shown_names(*option), takes_value ? type.substr(0, type.find(':')) : "",
                    option->get_default_str(), option->get_description(), option->get_required()});
  }
  return rows;
}

std::string help_text(const CLI::App& app) {
  std::string usage, flags;
  for (const FlagRow& row : flag_rows(app)) {
    const bool positional = row.names[0] != '-';
    if (positional) usage += row.required ? " " + row.names : " [" + row.names + "]";
    flags += "  " + row.names + (row.value_name.empty() || positional ? "" : " " + row.value_name);
    if (!row.default_text.empty()) flags += "  [default: " + row.default_text + "]";
    flags += "\n";
    for (const std::string& line : wrap(row.why, 96)) flags += "      " + line + "\n";
  }
  std::string name = app.get_name();
  for (const CLI::App* parent = app.get_parent(); parent; parent = parent->get_parent()) {
    name = parent->get_name() + " " + name;
  }
  std::string text = app.get_description() + "\n\nusage: " + name + usage;
  const auto subcommands = app.get_subcommands([](const CLI::App*) { return true; });
  if (!subcommands.empty()) text += " COMMAND";
  text += " [FLAGS]\n\n";
  for (const CLI::App* sub : subcommands) {
    text += fmt::format("  {:<10}{}\n", sub->get_name(), sub->get_description());
  }
  if (!subcommands.empty()) text += "\n";
  return text + flags + (app.get_footer().empty() ? "" : "\n" + app.get_footer() + "\n");
}

std::string markdown_table(const CLI::App& app) {
  const auto cell = [](std::string text) {
    for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.replace(at, 1, "\\|");
    return text;
  };
  std::string text = "| flag | default | what it does, and why the default |\n|---|---|---|\n";
  for (const FlagRow& row : flag_rows(app)) {
    const std::string value = row.value_name.empty() || row.names[0] != '-' ? "" : " " + row.value_name;
    text +=
        fmt::format("| `{}` | {} | {} |\n", cell(row.names + value), cell(row.default_text), cell(row.why));
  }
  return text;
}

int edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<int>> d(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = int(i);
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = int(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

std::string nearest_word(const std::string& word, const std::vector<std::string>& words) {
  std::string best;
  int best_distance = 3;
  for (const std::string& candidate : words) {
    const int distance = edit_distance(word, candidate);
    if (distance >= best_distance) continue;
    best = candidate;
    best_distance = distance;
  }
  return best;
}

std::string nearest_flag(const CLI::App& app, const std::string& unknown) {
  const std::string word = unknown.substr(0, unknown.find('='));
  std::string best;
  int best_distance = std::max(2, int(word.size()) / 3) + 1;
  for (const std::string& name : long_names(app)) {
    // A flag that only lacks its end ("--max-running") is as near as one typing error.
    const int distance = word.size() > 4 && name.starts_with(word) ? 1 : edit_distance(word, name);
    if (distance < best_distance) {
      best = name;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace gapless
