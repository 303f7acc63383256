// POST /generate, SGLang's interface: what it accepts and refuses, the shape of its answers, and that the
// last event of a stream is the answer in one piece.
#include <gtest/gtest.h>

#include <random>

#include "server/native_format.h"
#include "server/testing/test_server.h"

namespace gapless::testing {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

json generate(const TestServer& test, const std::string& body) {
  const ClientResponse r = test.client().post("/generate", body);
  EXPECT_EQ(r.status, 200) << r.body;
  return r.json();
}

// The last event of each index.
std::map<int, json> last_events(const ClientResponse& response) {
  EXPECT_EQ(response.status, 200) << response.body;
  const std::vector<std::string> data = sse_data(response.body);
  std::map<int, json> last;
  if (data.empty()) return last;
  EXPECT_EQ(data.back(), "[DONE]");
  for (size_t i = 0; i + 1 < data.size(); i++) {
    json event = json::parse(data[i]);
    const int index = event.value("index", 0);
    event.erase("index");
    if (last.contains(index)) {
      const std::string before = last[index]["text"], now = event["text"];
      EXPECT_TRUE(now.starts_with(before)) << "the text of an event goes on with that of the one before";
      EXPECT_TRUE(last[index]["meta_info"]["finish_reason"].is_null());
    }
    last[index] = std::move(event);
  }
  return last;
}

TEST(Generate, AFieldAtTheWrongPlaceIsToldTheRightOne) {
  TestServer test;
  const auto refusal = [&](const std::string& fields) {
    const ClientResponse r = test.client().post("/generate", R"({"text":"a",)" + fields + "}");
    EXPECT_EQ(r.status, 400) << fields;
    return r.error("message");
  };
  EXPECT_EQ(refusal(R"("temperature":0)"), "temperature is not read here: sampling_params.temperature");
  EXPECT_EQ(refusal(R"("max_tokens":5)"), "max_tokens is not read here: sampling_params.max_new_tokens");
  EXPECT_EQ(refusal(R"("sampling_params":{"max_tokens":5})"),
            "sampling_params.max_tokens is not read here: sampling_params.max_new_tokens");
  EXPECT_EQ(refusal(R"("sampling_params":{"stream":true})"),
            "sampling_params.stream is not read here: stream, beside sampling_params");
}

TEST(Generate, OneAnswer) {
  TestServer test;
  const json answer = generate(test, R"({"text":"hi","sampling_params":{"max_new_tokens":5},"rid":"mine"})");
  EXPECT_EQ(answer["text"], test.engine.answer("hi", 0, 5));
  EXPECT_EQ(answer["output_ids"].size(), 5u);
  const json& meta = answer["meta_info"];
  EXPECT_EQ(meta["id"], "mine");
  EXPECT_EQ(meta["finish_reason"], json::parse(R"({"type":"length","length":5})"));
  EXPECT_EQ(meta["prompt_tokens"], 2);
  EXPECT_EQ(meta["completion_tokens"], 5);
  EXPECT_EQ(meta["cached_tokens"], 0);
  EXPECT_FALSE(meta.contains("output_token_logprobs"));
  const json whole = generate(test, R"({"text":"hi"})");
  EXPECT_EQ(whole["meta_info"]["finish_reason"], json::parse(R"({"type":"stop","matched":257})"));
  EXPECT_EQ(test.engine.submitted().back().max_tokens, 128);
  EXPECT_FALSE(whole["meta_info"]["id"].get<std::string>().empty());
}

TEST(Generate, EveryParameterArrives) {
  TestServer test;
  generate(
      test,
      R"({"input_ids":[7,8],"sampling_params":{"max_new_tokens":9,"min_new_tokens":2,"temperature":0.5,"top_p":0.9,
    "top_k":-1,"min_p":0.1,"frequency_penalty":-1,"presence_penalty":1.5,"repetition_penalty":1.25,"stop":["a","b"],
    "stop_token_ids":[5,6],"ignore_eos":true,"skip_special_tokens":false,"sampling_seed":-1,"n":2,
    "json_schema":null,"no_stop_trim":true},
    "return_logprob":true,"logprob_start_len":0,"top_logprobs_num":3})");
  const GenerateRequest r = test.engine.submitted().at(0);
  EXPECT_EQ(std::get<std::vector<int32_t>>(r.prompt), (std::vector<int32_t>{7, 8}));
  EXPECT_EQ(r.max_tokens, 9);
  EXPECT_EQ(r.sampling.min_tokens, 2);
  EXPECT_EQ(r.sampling.temperature, 0.5f);
  EXPECT_EQ(r.sampling.top_p, 0.9f);
  EXPECT_EQ(r.sampling.top_k, 0);
  EXPECT_EQ(r.sampling.min_p, 0.1f);
  EXPECT_EQ(r.sampling.frequency_penalty, -1.0f);
  EXPECT_EQ(r.sampling.presence_penalty, 1.5f);
  EXPECT_EQ(r.sampling.repetition_penalty, 1.25f);
  EXPECT_EQ(r.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(r.sampling.stop_token_ids, (std::vector<int32_t>{5, 6}));
  EXPECT_TRUE(r.sampling.ignore_eos);
  EXPECT_FALSE(r.skip_special_tokens);
  EXPECT_TRUE(r.include_stop);
  EXPECT_EQ(r.seed, uint64_t(-1));
  EXPECT_EQ(r.n, 2);
  EXPECT_EQ(r.sampling.top_logprobs, 3);
  EXPECT_TRUE(r.want_prompt_logprobs);
}

TEST(Generate, AGrammarIsPassedOn) {
  TestServer test;
  generate(test, R"({"text":["a","b"],"sampling_params":{"json_schema":"{\"type\":\"integer\"}"}})");
  for (const GenerateRequest& r : test.engine.submitted()) {
    ASSERT_TRUE(r.grammar.has_value());
    EXPECT_EQ(*r.grammar, (GrammarSpec{GrammarSpec::Kind::kJsonSchema, R"({"type":"integer"})"}));
  }
}

TEST(Generate, ListsAnswerLists) {
  TestServer test;
  const json one = generate(test, R"({"text":["a"]})");
  ASSERT_TRUE(one.is_array());
  EXPECT_EQ(one.size(), 1u);
  const json two = generate(test, R"({"text":["a","bc"],"rid":["x","y"],
    "sampling_params":[{"max_new_tokens":2},{"max_new_tokens":3}]})");
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0]["text"], test.engine.answer("a", 0, 2));
  EXPECT_EQ(two[1]["text"], test.engine.answer("bc", 0, 3));
  EXPECT_EQ(two[1]["meta_info"]["prompt_tokens"], 2);
  EXPECT_EQ(two[0]["meta_info"]["id"], "x");
  EXPECT_EQ(two[1]["meta_info"]["id"], "y");
  const json ids = generate(test, R"({"input_ids":[[1,2,3],[4]],"sampling_params":{"max_new_tokens":1}})");
  EXPECT_EQ(ids[0]["meta_info"]["prompt_tokens"], 3);
  EXPECT_NE(ids[0]["meta_info"]["id"], ids[1]["meta_info"]["id"]);
  const json n = generate(test, R"({"text":"a","sampling_params":{"n":3,"max_new_tokens":2}})");
  ASSERT_EQ(n.size(), 3u);
  EXPECT_EQ(n[2]["text"], test.engine.answer("a", 2, 2));
}

// [logprob, id, text or null]; the first of the prompt has no logprob.
TEST(Generate, LogprobsAsTriples) {
  TestServer test;
  const std::string body =
      R"({"text":"abcd","sampling_params":{"max_new_tokens":3},"return_logprob":true,"top_logprobs_num":2)";
  const json out = generate(test, body + "}")["meta_info"];
  EXPECT_EQ(out["input_token_logprobs"], json::array());
  EXPECT_EQ(out["output_token_logprobs"].size(), 3u);
  EXPECT_EQ(out["output_token_logprobs"][0].size(), 3u);
  EXPECT_TRUE(out["output_token_logprobs"][0][2].is_null());
  EXPECT_EQ(out["output_top_logprobs"][0].size(), 2u);
  EXPECT_EQ(out["output_top_logprobs"][0][0], out["output_token_logprobs"][0]);

  const json in =
      generate(test, body + R"(,"logprob_start_len":1,"return_text_in_logprobs":true})")["meta_info"];
  ASSERT_EQ(in["input_token_logprobs"].size(), 3u);
  EXPECT_EQ(in["input_token_logprobs"][0], json::parse(R"([null,98,"b"])"));
  EXPECT_EQ(in["input_token_logprobs"][2][1], 100);
  EXPECT_EQ(in["input_token_logprobs"][2][2], "d");
  EXPECT_TRUE(in["input_token_logprobs"][1][0].is_number());
  EXPECT_EQ(in["input_top_logprobs"].size(), 3u);
  EXPECT_TRUE(in["input_top_logprobs"][0].is_null());
  for (const char* beyond : {"4", "1000"}) {
    const json none = generate(test, body + R"(,"logprob_start_len":)" + beyond + "}")["meta_info"];
    EXPECT_EQ(none["input_token_logprobs"], json::array()) << beyond;
  }
}

TEST(Generate, TheLastEventOfAStreamIsTheWholeAnswer) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  TestServer test({.step = 200us});
  for (int i = 0; i < 40; i++) {
    json body = {{"rid", "r"}, {"sampling_params", {{"max_new_tokens", random() % 12}}}};
    body["text"] = std::string(1 + random() % 9, char('a' + random() % 26));
    if (random() % 3 == 0) body["sampling_params"]["n"] = 1 + random() % 3;
    if (random() % 3 == 0) {
      body["text"] = json::array({body["text"], "second"});
      body["rid"] = json::array({"r", "s"});
    }
    if (random() % 2 == 0) {
      body["return_logprob"] = true;
      body["logprob_start_len"] = int(random() % 4) - 1;
      body["top_logprobs_num"] = random() % 3;
      body["return_text_in_logprobs"] = random() % 2 == 0;
    }
    json whole = generate(test, body.dump());
    if (!whole.is_array()) whole = json::array({whole});
    body["stream"] = true;
    const std::map<int, json> streamed = last_events(test.client().post("/generate", body.dump()));
    ASSERT_EQ(streamed.size(), whole.size()) << body;
    for (const auto& [index, event] : streamed) EXPECT_EQ(event, whole[index]) << body;
  }
}

// Every event has the whole answer, so a long one would cost the square of its length.
TEST(Generate, LongAnswersAreSentInFewerEvents) {
  const NativeFormat format({.logprobs = true, .top_logprobs = 20});
  PromptState prompt;
  prompt.accepted.emplace();
  Choice choice;
  choice.prompt = &prompt;
  TokenText token{.id = 1, .bytes = "a", .top = std::vector<TokenText>(20)};
  std::string out;
  const auto event_comes = [&](const ChoiceDelta& delta) {
    out.clear();
    format.stream_delta({}, choice, delta, {}, out);
    return !out.empty();
  };
  int first = 0, all = 0;
  for (int i = 0; i < 1000; i++) {
    all += event_comes({.index = 0, .text = "a", .tokens = {token}, .finish = {}});
    if (i == 99) first = all;
  }
  EXPECT_EQ(first, 100) << "each token at first";
  EXPECT_LT(all, 600);
  const Finish finish{FinishReason::kLength, {}, {}};
  ASSERT_TRUE(event_comes({.index = 0, .text = "", .tokens = {}, .finish = finish}));
  EXPECT_EQ(json::parse(sse_data(out).back())["output_ids"].size(), 1000u) << "the last one is whole";
}

TEST(Generate, RefusesByName) {
  TestServer test;
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", "text"},
      {R"({"text":"a","input_ids":[1]})", "text"},
      {R"({"text":7})", "text"},
      {R"({"text":[]})", "text"},
      {R"({"text":[1]})", "text"},
      {R"({"text":["a",1]})", "text"},
      {R"({"input_ids":"a"})", "input_ids"},
      {R"({"input_ids":["a"]})", "input_ids"},
      {R"({"input_ids":[1,-1]})", "input_ids"},
      {R"({"input_ids":[[1],[99999]]})", "input_ids"},
      {R"({"text":"a","stream":1})", "stream"},
      {R"({"text":"a","rid":7})", "rid"},
      {R"({"text":"a","rid":""})", "rid"},
      {R"({"text":["a","b"],"rid":"x"})", "rid"},
      {R"({"text":"a","sampling_params":3})", "sampling_params"},
      {R"({"text":"a","sampling_params":[{},{}]})", "sampling_params"},
      {R"({"text":["a","b"],"sampling_params":[{"n":2},{}]})", "sampling_params"},
      {R"({"text":"a","sampling_params":{"temperature":-1}})", "sampling_params.temperature"},
      {R"({"text":"a","sampling_params":{"max_new_tokens":"7"}})", "sampling_params.max_new_tokens"},
      {R"({"text":"a","sampling_params":{"max_new_tokens":1,"min_new_tokens":2}})",
       "sampling_params.min_new_tokens"},
      {R"({"text":"a","sampling_params":{"top_k":0.5}})", "sampling_params.top_k"},
      {R"({"text":"a","sampling_params":{"stop":7}})", "sampling_params.stop"},
      {R"({"text":"a","sampling_params":{"n":0}})", "sampling_params.n"},
      {R"({"text":"a","sampling_params":{"stop_regex":"a"}})", "sampling_params.stop_regex"},
      {R"({"text":"a","sampling_params":{"regex":7}})", "sampling_params.regex"},
      {R"({"text":"a","sampling_params":{"json_schema":"{}","regex":"a"}})", "sampling_params.regex"},
      {R"({"text":"a","return_logprob":"yes"})", "return_logprob"},
      {R"({"text":"a","logprob_start_len":-2})", "logprob_start_len"},
      {R"({"text":"a","top_logprobs_num":21})", "top_logprobs_num"},
      {R"({"text":"a","image_data":"x"})", "image_data"},
      {R"({"text":"a","regex":"x"})", "regex"},
      {R"({"text":"a","lora_path":"x"})", "lora_path"},
      {R"({"text":"a","return_hidden_states":true})", "return_hidden_states"},
  };
  for (const auto& [body, param] : cases) {
    const ClientResponse r = test.client().post("/generate", body);
    EXPECT_EQ(r.status, 400) << body;
    EXPECT_EQ(r.error("param"), param) << body << r.body;
  }
  EXPECT_TRUE(test.engine.submitted().empty());
}

TEST(Generate, AFailedAnswerAmongOthersSaysWhy) {
  TestServer test({.fault = [](const GenerateRequest&, int32_t choice, int32_t token) {
    return choice == 1 && token == 2 ? Status(StatusCode::kUnavailable, "no memory") : Status();
  }});
  for (const char* stream : {"false", "true"}) {
    const ClientResponse r = test.client().post(
        "/generate",
        fmt::format(R"({{"text":"a","sampling_params":{{"n":2,"max_new_tokens":4}},"stream":{}}})", stream));
    json failed = std::string(stream) == "true" ? last_events(r)[1] : r.json()[1];
    EXPECT_EQ(failed["meta_info"]["finish_reason"]["type"], "abort");
    EXPECT_EQ(failed["meta_info"]["finish_reason"]["error"]["message"], "no memory");
    EXPECT_EQ(failed["output_ids"].size(), 2u);
  }
}

}  // namespace
}  // namespace gapless::testing
