// /v1/embeddings: what it accepts and refuses, and how it answers.
#include <gtest/gtest.h>

#include "server/embedding_format.h"
#include "server/generation_plan.h"
#include "server/testing/test_server.h"

namespace gapless::testing {
namespace {

using nlohmann::json;

Result<GenerationPlan> parse(const std::string& fields, int32_t embedding_dim = 64) {
  ModelFacts model;
  model.id = "m";
  model.vocab_size = 1000;
  model.embedding_dim = embedding_dim;
  ASSIGN_OR_RETURN(const JsonBody body, JsonBody::parse("{" + fields + "}"));
  return parse_embedding_request(body, model, {});
}

TEST(EmbeddingRequest, InputsAndDefaults) {
  const GenerationPlan plan = parse(R"("input":["a","b"],"user":"me","dimensions":64)").value();
  ASSERT_EQ(plan.requests.size(), 2u);
  EXPECT_EQ(plan.requests[1].embedding, Pooling::kLast);
  EXPECT_EQ(plan.requests[1].max_tokens, 0);
  EXPECT_EQ(std::get<TextPrompt>(plan.requests[1].prompt).text, "b");
  EXPECT_TRUE(std::get<TextPrompt>(plan.requests[1].prompt).add_special);
  EXPECT_EQ(parse(R"("input":"a","pooling":"mean")")->requests[0].embedding, Pooling::kMean);
  EXPECT_EQ(std::get<std::vector<int32_t>>(parse(R"("input":[[5,6],[7]])")->requests[0].prompt),
            (std::vector<int32_t>{5, 6}));
  EXPECT_TRUE(
      parse(R"("input":[1],"encoding_format":null,"dimensions":null,"pooling":null,"normalize":null,)"
            R"("truncate_prompt_tokens":null,"cache_salt":null,"add_special_tokens":null,"user":null)")
          .is_ok());
}

TEST(EmbeddingRequest, Refusals) {
  const struct {
    const char *fields, *param;
  } cases[] = {{R"("model":"m")", "input"},
               {R"("input":5)", "input"},
               {R"("input":[1000])", "input"},
               {R"("input":["a",1])", "input"},
               {R"("input":[])", "input"},
               {R"("input":"a","encoding_format":"hex")", "encoding_format"},
               {R"("input":"a","encoding_format":1)", "encoding_format"},
               {R"("input":"a","dimensions":32)", "dimensions"},
               {R"("input":"a","dimensions":0)", "dimensions"},
               {R"("input":"a","pooling":"cls")", "pooling"},
               {R"("input":"a","normalize":"yes")", "normalize"},
               {R"("input":"a","truncate_prompt_tokens":5)", "truncate_prompt_tokens"}};
  for (const auto& [fields, param] : cases) {
    const Result<GenerationPlan> plan = parse(fields);
    ASSERT_FALSE(plan.is_ok()) << fields;
    EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(plan.status().param(), param) << plan.status().message();
  }
  std::string many = "\"input\":[\"a\"";
  for (int i = 0; i < 2048; i++) many += ",\"a\"";
  EXPECT_EQ(parse(many + "]").status().param(), "input");
  EXPECT_EQ(parse(R"("input":"a")", 0).status().param(), "model") << "a model without hidden states";
}

TEST(EmbeddingFormat, Base64AndLength) {
  const float values[] = {1.0f, -2.5f};  // 00 00 80 3f 00 00 20 c0
  EXPECT_EQ(base64(values), "AACAPwAAIMA=");
  EXPECT_EQ(base64(std::span(values).first(1)), "AACAPw==");
  EXPECT_EQ(base64({}), "");
  std::vector<float> vector = {3, -4}, zero = {0, 0};
  normalize(vector);
  EXPECT_EQ(vector, (std::vector<float>{0.6f, -0.8f}));
  normalize(zero);
  EXPECT_EQ(zero, (std::vector<float>{0, 0}));
}

TEST(Embeddings, AnswerInTheOrderOfTheInputs) {
  TestServer t;
  HttpClient client = t.client();
  const json j = client.post("/v1/embeddings", R"({"input":["b","a"],"normalize":false})").json();
  EXPECT_EQ(j["object"], "list");
  EXPECT_EQ(j["model"], "fake-model");
  EXPECT_EQ(j["usage"]["prompt_tokens"], 2);
  EXPECT_EQ(j["usage"]["total_tokens"], 2);
  ASSERT_EQ(j["data"].size(), 2u);
  for (int i = 0; i < 2; i++) {
    EXPECT_EQ(j["data"][i]["object"], "embedding");
    EXPECT_EQ(j["data"][i]["index"], i);
    const float first = i == 0 ? 'b' : 'a';
    EXPECT_EQ(j["data"][i]["embedding"], (json{3 * first, 4 * first}));
  }
  const json unit = client.post("/v1/embeddings", R"({"input":"a"})").json();
  EXPECT_EQ(unit["data"][0]["embedding"][0].get<float>(), 0.6f);
  const json coded = client.post("/v1/embeddings", R"({"input":"a","encoding_format":"base64"})").json();
  EXPECT_EQ(coded["data"][0]["embedding"], base64(std::vector{0.6f, 0.8f}));
}

// Of the engine's messages too.
TEST(Embeddings, ErrorsAreAboutTheInput) {
  TestServer t;
  HttpClient client = t.client();
  const ClientResponse r = client.post("/v1/embeddings", R"({"input":["a",""]})");
  EXPECT_EQ(r.status, 400);
  EXPECT_EQ(r.json()["error"]["param"], "input");
}

TEST(Embeddings, OneThatFailsFailsAll) {
  FakeOptions options;
  options.fault = [](const GenerateRequest& r, int32_t, int32_t) {
    return std::get<TextPrompt>(r.prompt).text == "bad" ? Status::internal("broken") : Status();
  };
  TestServer t(options);
  HttpClient client = t.client();
  EXPECT_EQ(client.post("/v1/embeddings", R"({"input":["good","bad","good"]})").status, 500);
  EXPECT_EQ(client.post("/v1/embeddings", R"({"input":["good"]})").status, 200);
}

}  // namespace
}  // namespace gapless::testing
