// The command line as every subcommand declares it: one line per flag with its default and the reason for it,
// help text made from the same lines, and the nearest match for a flag that does not exist. Main thread only.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace gapless {

// "512M", "2G", "65536" (K, M, G: powers of 1024) -> bytes. An error names what was seen.
Result<int64_t> parse_bytes(const std::string& text);

// What CLI11 calls for a value; an empty string means it is fine.
CLI::Validator byte_size();
// One of the names; the error lists them, and names the nearest.
CLI::Validator one_of(std::vector<std::string> names);
// For values whose emptiness would be read as "not given", as when a script's variable is not set.
CLI::Validator not_empty();

// Declares `--name VALUE`. `default_text` is what --help prints where the number alone would say little ("the
// model's"); empty: the value. `why` says what the flag does and why the default is what it is.
template <class T>
CLI::Option* flag(CLI::App& app, const std::string& name, T& target, const std::string& value_name,
                  const std::string& default_text, const std::string& why) {
  CLI::Option* option = app.add_option(name, target, why)->type_name(value_name);
  if (default_text.empty()) {
    option->capture_default_str();
  } else {
    option->default_str(default_text);
  }
  return option;
}

// Declares a flag without a value ("--a,!--no-a" gives both spellings).
CLI::Option* toggle(CLI::App& app, const std::string& name, bool& target, const std::string& default_text,
                    const std::string& why);

// One row of a command's table, as printed by --help and in docs/cli.md.
struct FlagRow {
  std::string names, value_name, default_text, why;
  bool required = false;
};
std::vector<FlagRow> flag_rows(const CLI::App& app);

// --help of `app`: usage, description, then every flag with its default on one line and its reason below,
// wrapped.
std::string help_text(const CLI::App& app);

// The same rows as a Markdown table.
std::string markdown_table(const CLI::App& app);

// The flag of `app` that `unknown` most likely meant; empty when none is near.
std::string nearest_flag(const CLI::App& app, const std::string& unknown);

// The one of `words` that at most two edits tell from `word`; empty when there is none.
std::string nearest_word(const std::string& word, const std::vector<std::string>& words);

// Edits (insert, delete, replace, swap of neighbours) that turn one word into the other.
int edit_distance(const std::string& a, const std::string& b);

}  // namespace gapless
