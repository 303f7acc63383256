// Writes a tiny random model to a file, for tests in other languages.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "model/testing/tiny_model.h"

int main(int argc, char** argv) {
  using namespace gapless::testing;
  const std::string_view kind = argc > 2 ? argv[1] : "";
  if (kind != "llama" && kind != "gemma3") {
    std::fprintf(stderr, "usage: %s llama|gemma3 FILE [SEED]\n", argv[0]);
    return 2;
  }
  TinyModelOptions options;
  if (argc > 3) options.seed = std::strtoull(argv[3], nullptr, 10);
  const gapless::Status status =
      write_file(argv[2], kind == "llama" ? tiny_llama(options) : tiny_gemma3(options));
  if (!status.is_ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
  return status.is_ok() ? 0 : 1;
}
