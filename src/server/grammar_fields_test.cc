// What each of the fields that limit an answer asks of the engine, and what is refused.
#include "server/grammar_fields.h"

#include <gtest/gtest.h>

#include "server/json_body.h"

namespace gapless {
namespace {

using Kind = GrammarSpec::Kind;

Result<GenerateRequest> read(const std::string& members) {
  auto body = JsonBody::parse("{" + members + "}");
  if (!body.is_ok()) return body.status();
  FieldReader fields(body->root());
  GenerateRequest request;
  read_grammar(
      fields, [&](const std::string& field) { return body->raw(field); }, request);
  if (fields.failed()) return fields.status();
  return request;
}

TEST(GrammarFields, EachNamesItsLanguage) {
  const struct {
    const char* members;
    Kind kind;
    const char* text;
  } cases[] = {
      {R"("response_format":{"type":"json_object"})", Kind::kJsonSchema, R"({"type":"object"})"},
      {R"("response_format":{"type":"json_object","schema":{"enum":[1]}})", Kind::kJsonSchema,
       R"({"enum":[1]})"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{"b":1,"a":2}}})",
       Kind::kJsonSchema, R"({"b":1,"a":2})"},
      {R"("response_format":{"type":"json_schema","json_schema":{"schema":true,"strict":null}})",
       Kind::kJsonSchema, "true"},
      {R"("response_format":{"type":"regex","regex":"a+"})", Kind::kRegex, "a+"},
      {R"("response_format":{"type":"lark","lark":"start: \"a\""})", Kind::kLark, "start: \"a\""},
      {R"("response_format":{"type":"grammar","grammar":"root ::= \"a\""})", Kind::kGbnf, "root ::= \"a\""},
      {R"("structured_outputs":{"json":{"z":1,"a":[]},"regex":null})", Kind::kJsonSchema,
       R"({"z":1,"a":[]})"},
      {R"("structured_outputs":{"json":"{\"z\": 1}"})", Kind::kJsonSchema, R"({"z": 1})"},
      {R"("structured_outputs":{"regex":"x"})", Kind::kRegex, "x"},
      {R"("structured_outputs":{"choice":["a"]})", Kind::kLark, R"(start: "a" )"},
      {R"("structured_outputs":{"grammar":"start: \"a\""})", Kind::kLark, R"(start: "a")"},
      {R"("structured_outputs":{"json_object":true,"disable_any_whitespace":false})", Kind::kJsonSchema,
       R"({"type":"object"})"},
      {R"("guided_json":{"z":1,"a":2})", Kind::kJsonSchema, R"({"z":1,"a":2})"},
      {R"("guided_regex":"[a]")", Kind::kRegex, "[a]"},
      {R"("guided_choice":["yes","n\"o"])", Kind::kLark, R"(start: "yes"  | "n\"o" )"},
      {R"("guided_grammar":"root ::= \"a\"")", Kind::kGbnf, R"(root ::= "a")"},
      {R"("json_schema":"{}")", Kind::kJsonSchema, "{}"},
      {R"("json_schema":{"é":"\u00e9"})", Kind::kJsonSchema, R"({"é":"é"})"},
      {R"("regex":"b","response_format":{"type":"text"})", Kind::kRegex, "b"},
      {R"("ebnf":"root ::= \"a\"")", Kind::kGbnf, R"(root ::= "a")"},
      {R"("grammar":"root ::= \"a\"")", Kind::kGbnf, R"(root ::= "a")"},
      {R"("grammar":"start: \"a\"")", Kind::kLark, R"(start: "a")"},
  };
  for (const auto& c : cases) {
    const auto request = read(c.members);
    ASSERT_TRUE(request.is_ok()) << c.members << ": " << request.status().message();
    ASSERT_TRUE(request->grammar.has_value()) << c.members;
    EXPECT_EQ(request->grammar->kind, c.kind) << c.members;
    EXPECT_EQ(request->grammar->text, c.text) << c.members;
  }
}

TEST(GrammarFields, NoneIsNone) {
  for (const char* members : {R"("stop":null)", R"("response_format":null)",
                              R"("response_format":{"type":"text"})", R"("guided_json":null,"regex":null)"}) {
    const auto request = read(members);
    ASSERT_TRUE(request.is_ok()) << members << ": " << request.status().message();
    EXPECT_FALSE(request->grammar.has_value()) << members;
  }
}

// Keeping the order of a schema's members costs the square of their number: too many are refused first.
TEST(GrammarFields, ASchemaOfTooManyMembersIsRefusedUnparsed) {
  std::string members;
  for (int i = 0; i <= 1000; i++) members += fmt::format(R"({}"k{}":{{}})", i ? "," : "", i);
  const Status status = read(R"("guided_json":{"properties":{)" + members + "}}").status();
  EXPECT_EQ(status.param(), "guided_json");
  EXPECT_NE(status.message().find("an object of 1001 members"), std::string::npos) << status.message();
}

TEST(GrammarFields, RefusalsNameTheField) {
  const struct {
    const char *members, *param, *part;
  } cases[] = {
      {R"("response_format":"json")", "response_format", "must be an object whose type is"},
      {R"("response_format":{"type":5})", "response_format", "must be an object whose type is"},
      {R"("response_format":{"type":"structural_tag"})", "response_format",
       "must be an object whose type is"},
      {R"("response_format":{"type":"json_schema"})", "response_format", "needs a member json_schema"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"x"}})", "response_format",
       "must be an object with a schema"},
      {R"("response_format":{"type":"json_schema","json_schema":{"schema":{},"strict":"yes"}})",
       "response_format", "json_schema.strict must be a boolean"},
      {R"("response_format":{"type":"json_schema","json_schema":{"schema":5}})", "response_format",
       "must be a JSON schema, got 5"},
      {R"("response_format":{"type":"regex","regex":{}})", "response_format",
       "must be a string, got an object"},
      {R"("structured_outputs":{})", "structured_outputs", "must have one of"},
      {R"("structured_outputs":{"json":{},"regex":"a"})", "structured_outputs", "json and regex cannot both"},
      {R"("structured_outputs":{"json":{},"disable_any_whitespace":true})", "structured_outputs",
       "'disable_any_whitespace' is not available"},
      {R"("structured_outputs":{"json_object":1})", "structured_outputs", "must be true, got 1"},
      {R"("guided_choice":[])", "guided_choice", "got an empty one"},
      {R"("guided_choice":["a",""])", "guided_choice", "strings that are not empty"},
      {R"("guided_choice":["a",3])", "guided_choice", "got 3"},
      {R"("guided_json":[])", "guided_json", "must be a JSON schema, got an array"},
      {R"("guided_regex":5)", "guided_regex", "must be a string, got 5"},
      {R"("grammar":{})", "grammar", "must be a string"},
      {R"("guided_json":{},"guided_regex":"a")", "guided_regex", "guided_json and guided_regex cannot both"},
      {R"("response_format":{"type":"json_object"},"ebnf":"root ::= \"a\"")", "ebnf",
       "response_format and ebnf"},
      {R"("guided_whitespace_pattern":" ")", "guided_whitespace_pattern", "is not supported"},
  };
  for (const auto& c : cases) {
    const auto request = read(c.members);
    ASSERT_FALSE(request.is_ok()) << c.members;
    EXPECT_EQ(request.status().code(), StatusCode::kInvalidArgument) << c.members;
    EXPECT_EQ(request.status().param(), c.param) << c.members;
    EXPECT_NE(request.status().message().find(c.part), std::string::npos) << request.status().message();
  }
}

}  // namespace
}  // namespace gapless
