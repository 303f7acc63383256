// A conversation in the terminal, with Gapless as a library: chat MODEL.gguf, or chat sim:PROFILE for a
// simulated accelerator.
#include <gapless/engine.h>

#include <future>
#include <iostream>

using gapless::Engine;

// Prints the answer as it comes; blocks until it has ended.
static std::string answer(Engine& engine, const std::vector<Engine::Message>& conversation) {
  std::string text;
  auto ended = std::make_shared<std::promise<Engine::Outcome>>();  // outlives the call that fulfils it
  engine.submit(
      {.prompt = conversation, .max_tokens = 200, .sampling = {.temperature = 0.7f, .top_p = 0.95f}},
      [&text](const Engine::Delta& delta) { std::cout << delta.text << std::flush, text += delta.text; },
      [ended](const Engine::Outcome& outcome) { ended->set_value(outcome); });
  const Engine::Outcome outcome = ended->get_future().get();
  if (outcome.failure) throw std::runtime_error(outcome.failure->message);
  std::cout << '\n';
  return text;
}

int main(int argc, char** argv) try {
  if (argc != 2) throw std::invalid_argument("usage: chat MODEL.gguf | sim:PROFILE");
  const std::string model = argv[1];
  Engine::Options options;
  (model.starts_with("sim:") ? options.device : options.model_path) = model;
  Engine engine(options);
  std::vector<Engine::Message> conversation;
  for (std::string line; std::getline(std::cin, line);) {
    conversation.push_back({"user", line});
    conversation.push_back({"assistant", answer(engine, conversation)});
  }
} catch (const std::exception& error) {
  std::cerr << "chat: " << error.what() << '\n';
  return 1;
}
