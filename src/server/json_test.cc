// JSON in and out: limits, UTF-8, numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "server/api_error.h"
#include "server/field_reader.h"
#include "server/json_body.h"
#include "server/json_writer.h"

namespace gapless {
namespace {

using nlohmann::json;

std::string written(std::string_view value) {
  std::string out;
  JsonWriter(out).string(value);
  return out;
}

Status parse_error(const std::string& text) {
  return JsonBody::parse(text).status();
}

TEST(JsonWriter, WhatItWritesReadsBackTheSame) {
  std::string out;
  JsonWriter w(out);
  w.begin_object().key("a").integer(-5).key("b").begin_array().boolean(true).null().string(
      "x\"\\\n\t\x01\xE6\xBC\xA2");
  w.end_array().key("c").begin_object().end_object().key("d").raw("[1]").end_object();
  EXPECT_EQ(json::parse(out), json::parse(R"({"a":-5,"b":[true,null,"x\"\\\n\t\u0001漢"],"c":{},"d":[1]})"));
}

TEST(JsonWriter, A_U8_1_InvalidBytesBecomeReplacementCharacters) {
  const std::string fffd = "\xEF\xBF\xBD";
  EXPECT_EQ(written("a\xFF"
                    "b"),
            "\"a" + fffd + "b\"");
  EXPECT_EQ(written("\xE6\xBC"), "\"" + fffd + "\"") << "a cut character is one maximal part";
  EXPECT_EQ(written("\xED\xA0\x80"), "\"" + fffd + fffd + fffd + "\"") << "a surrogate";
  EXPECT_EQ(written("\xC0\xAF"), "\"" + fffd + fffd + "\"") << "an overlong form";
  EXPECT_EQ(written("\xF4\x90\x80\x80"), "\"" + fffd + fffd + fffd + fffd + "\"") << "beyond U+10FFFF";
}

TEST(JsonWriter, A_U8_1_AnyBytesGiveValidJson) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 2000; round++) {
    std::string bytes(random() % 20, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    const std::string out = written(bytes);
    EXPECT_TRUE(is_valid_utf8(out));
    EXPECT_TRUE(json::accept(out)) << out;
    if (is_valid_utf8(bytes)) {
      EXPECT_EQ(json::parse(out), bytes);
    }
  }
}

TEST(JsonWriter, A_LP_2_LogprobsAreFiniteAndExact) {
  for (const float bad :
       {std::nanf(""), std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
    std::string out;
    JsonWriter(out).logprob(bad);
    EXPECT_EQ(json::parse(out).get<double>(), -9999.0);
  }
  for (const float x : {-0.1f, -1e-9f, -17.25f, -0.3333333f}) {
    std::string out;
    JsonWriter(out).logprob(x);
    EXPECT_EQ(json::parse(out).get<float>(), x);
  }
}

TEST(JsonWriter, PrintableCutsBetweenCharacters) {
  EXPECT_EQ(printable("ab\xE6\xBC\xA2", 4), "ab...");
  EXPECT_EQ(printable("a\r\nb"), "a  b");
  EXPECT_TRUE(is_valid_utf8(printable("\xFF\xFE\x00")));
}

TEST(JsonBody, A_HT_1_ASyntaxErrorSaysWhere) {
  EXPECT_NE(parse_error("{\"a\": 1,\n x}").message().find("line 2, column 2"), std::string::npos)
      << parse_error("{\"a\": 1,\n x}").message();
  EXPECT_EQ(parse_error("").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(parse_error("[1]").message(), "the body must be a JSON object");
  EXPECT_FALSE(parse_error("{\"a\":1} x").is_ok());
  EXPECT_FALSE(parse_error("{\"a\":NaN}").is_ok());
  EXPECT_FALSE(parse_error("{\"a\":1e999}").is_ok());
  EXPECT_FALSE(parse_error("\xEF\xBB\xBF{").is_ok());
}

TEST(JsonBody, A_HT_1_TheCauseIsNamedAndTheBytesAreNot) {
  const std::pair<const char*, const char*> cases[] = {{R"({"a":"secret \ud83d"})", "surrogate"},
                                                       {R"({"a":"\ude00"})", "surrogate"},
                                                       {"{\"a\":\"secret \x01\"}", "control character"},
                                                       {"{\"a\":NaN}", "NaN"},
                                                       {"{\"a\":-Infinity}", "NaN"},
                                                       {"{\"a\":\"secret", "closing quote"},
                                                       {R"({"a":"secret\q"})", "escape"},
                                                       {R"({"a":1)", "ends too early"},
                                                       {R"({"a":1} secret)", "follows the object"},
                                                       {R"({"a":secret surrogate})", "error at line"}};
  for (const auto& [text, cause] : cases) {
    const std::string message = parse_error(text).message();
    EXPECT_NE(message.find(cause), std::string::npos) << text << " -> " << message;
    EXPECT_EQ(message.find("secret"), std::string::npos) << message;
    EXPECT_TRUE(std::string_view(text).find("secret surrogate") == std::string_view::npos ||
                message.find("surrogate") == std::string::npos)
        << "what the client wrote is not taken for the cause";
  }
}

TEST(JsonBody, A_HT_2_DepthIsLimitedWithoutRecursion) {
  const auto nested = [](size_t depth) {
    return "{\"tools\":" + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  EXPECT_TRUE(JsonBody::parse(nested(kMaxJsonDepth - 1)).is_ok());
  for (const size_t depth : {size_t(kMaxJsonDepth), size_t(3000), size_t(100'000)}) {
    EXPECT_NE(parse_error(nested(depth)).message().find("nested deeper than 64"), std::string::npos) << depth;
  }
  EXPECT_FALSE(parse_error("{\"a\":" + std::string(1 << 20, '{')).is_ok());
  EXPECT_TRUE(JsonBody::parse("{\"a\":\"" + std::string(1000, '[') + "\"}").is_ok())
      << "brackets in a string are text";
}

TEST(JsonBody, TheNumberOfValuesIsLimited) {
  std::string text = "{\"prompt\":[0";
  for (int i = 0; i < kMaxJsonValues; i++) text += ",0";
  EXPECT_NE(parse_error(text + "]}").message().find("more than 2000000"), std::string::npos);
}

TEST(JsonBody, A_HT_3_SurrogatesAndEncodings) {
  EXPECT_FALSE(parse_error(R"({"a":"emoji \ud83d"})").is_ok());
  EXPECT_FALSE(parse_error(R"({"a":"\ude00"})").is_ok());
  EXPECT_EQ(parse_error("{\"a\":\"\xC4\xE3\xBA\xC3\"}").message(), "the body is not valid UTF-8") << "GBK";
  const auto pair = JsonBody::parse(R"({"a":"\ud83d\ude00"})");
  ASSERT_TRUE(pair.is_ok());
  EXPECT_EQ(pair.value().root()["a"], "\xF0\x9F\x98\x80");
}

TEST(JsonBody, RawKeepsTheClientsOrderAndTheLastDuplicate) {
  const auto body = JsonBody::parse(R"({"x":[1], "m": {"z":1,"a":[2,{"q":"},"}]} ,"x" : "\"]" })");
  ASSERT_TRUE(body.is_ok());
  EXPECT_EQ(json::parse(body.value().raw("m")), body.value().root()["m"]);
  EXPECT_NE(body.value().raw("m").find(R"({"z":1,"a":)"), std::string::npos);
  EXPECT_EQ(json::parse(body.value().raw("x")), body.value().root()["x"]);
  EXPECT_EQ(body.value().raw("absent"), "");
  const auto escaped = JsonBody::parse(R"({"\u006d": [7]})");
  ASSERT_TRUE(escaped.is_ok());
  EXPECT_EQ(json::parse(escaped.value().raw("m")), json::parse("[7]"));
}

TEST(JsonBody, AnyBytesAreParsedOrRefused) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const std::string good =
      R"({"model":"m","messages":[{"role":"user","content":"h\u00e9\n"}],"n":2,"stop":["a"]})";
  int parsed = 0;
  for (int round = 0; round < 5000; round++) {
    std::string text = good;
    for (uint32_t i = random() % 4; i > 0; i--)
      text[random() % text.size()] = "{}[]\",:\\0au\xFF"[random() % 12];
    const auto body = JsonBody::parse(text);
    EXPECT_EQ(body.is_ok(), json::accept(text) && json::parse(text).is_object()) << text;
    if (!body.is_ok()) continue;
    parsed++;
    for (const auto& [key, value] : body.value().root().items()) {
      EXPECT_EQ(json::parse(body.value().raw(key)), value) << text;
    }
  }
  EXPECT_GT(parsed, 500);
}

TEST(ApiError, TheLogNamesTheReasonWithoutTheClientsText) {
  const json object = json::parse(R"({"n":"my \"secret\" text"})");
  const Status status = integer_value("n", object["n"], 1, 128).status();
  EXPECT_NE(status.message().find("secret"), std::string::npos) << "the client is told";
  EXPECT_EQ(error_reason(status), "error=400 param=n \"n must be an integer, got the string ...\"");
  EXPECT_EQ(
      error_reason(Status::invalid("the prompt has 5 tokens").with_error_code("context_length_exceeded")),
      "error=context_length_exceeded \"the prompt has 5 tokens\"");
  EXPECT_EQ(error_reason(Status::invalid("no system message: secret").with_param("messages")),
            "error=400 param=messages")
      << "a template's own words";
  EXPECT_EQ(error_reason(Status::invalid("ebnf: the rule secret is not defined").with_param("ebnf")),
            "error=400 param=ebnf")
      << "a grammar's own words";
  EXPECT_EQ(error_reason(Status::invalid("panic: byte 1 of `secret`")), "error=400 \"panic: byte 1 of ...\"");
}

TEST(FieldReader, KeepsTheFirstErrorAndLeavesTargetsAlone) {
  const json object = json::parse(R"({"flag":"true","n":2.0,"t":null,"big":9223372036854775808})");
  FieldReader fields(object);
  bool flag = false;
  float t = 0.5f;
  fields.number("t", {0, 2}, t);
  fields.number("absent", {0, 2}, t);
  EXPECT_FALSE(fields.failed());
  EXPECT_EQ(t, 0.5f);
  fields.boolean("flag", flag);
  int32_t n = 7;
  fields.integer("n", 1, 128, n);
  EXPECT_EQ(fields.status().message(), "flag must be a boolean, got the string \"true\"");
  EXPECT_EQ(fields.status().param(), "flag");
  EXPECT_EQ(n, 7);
  EXPECT_EQ(integer_value("n", object["n"], 1, 128).status().message(), "n must be an integer, got 2.0");
  EXPECT_EQ(integer_value("big", object["big"], 1, 128).status().message(),
            "big must be between 1 and 128, got 9223372036854775808");
}

}  // namespace
}  // namespace gapless
