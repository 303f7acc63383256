// Grammars over a vocabulary of bytes and a few words: what they allow, what is refused, and that no text of
// a client takes long.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "engine/grammar_cache.h"
#include "engine/llguidance_backend.h"
#include "engine/testing/hand_vocab.h"
#include "sampling/sampling_info.h"

namespace gapless {
namespace {

using nlohmann::json;
using Kind = GrammarSpec::Kind;

class GrammarTest : public ::testing::Test {
 protected:
  Result<std::shared_ptr<const Grammar>> compile(Kind kind, const std::string& text) {
    return backend_.compile({kind, text});
  }
  std::string refusal(Kind kind, const std::string& text) {
    const auto grammar = compile(kind, text);
    if (grammar.is_ok()) return "accepted";
    EXPECT_EQ(grammar.status().code(), StatusCode::kInvalidArgument) << text.substr(0, 200);
    return grammar.status().message();
  }

  std::vector<int32_t> allowed(GrammarMatcher& matcher) {
    const int32_t n = tokenizer_->vocab_size();
    std::vector<uint32_t> words(mask_words(n));
    const Status status = matcher.fill_mask(words);
    EXPECT_TRUE(status.is_ok()) << status.message();
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < n; ++id)
      if (words[size_t(id) / 32] >> (id % 32) & 1) ids.push_back(id);
    return ids;
  }
  bool ends(int32_t id) const {
    return std::ranges::find(tokenizer_->eos_ids(), id) != tokenizer_->eos_ids().end();
  }

  // The answer of a model that likes every allowed token the same, but the end where it may come a little
  // more. "...": it was not whole after max_tokens.
  std::string walk(const Grammar& grammar, std::mt19937& random, int max_tokens = 400) {
    const auto matcher = grammar.new_matcher();
    std::string text;
    for (int i = 0; i < max_tokens && !matcher->is_complete(); ++i) {
      const std::vector<int32_t> ids = allowed(*matcher);
      if (ids.empty()) return "nothing is allowed after " + text;
      const bool may_end = ends(ids.back()) || ends(ids.front());
      if (may_end && random() % 8 == 0) return text;
      const int32_t id = ids[random() % ids.size()];
      if (ends(id)) return text;
      text += tokenizer_->token_bytes().of(id);
      EXPECT_TRUE(matcher->accept(id).is_ok());
    }
    return matcher->is_complete() ? text : text + "...";
  }
  std::string walk(Kind kind, const std::string& text, std::mt19937& random) {
    const auto grammar = compile(kind, text);
    return grammar.is_ok() ? walk(**grammar, random) : grammar.status().message();
  }

  const testing::HandVocab vocab_ = testing::byte_level_vocab();
  const std::shared_ptr<const Tokenizer> tokenizer_ =
      std::make_shared<const Tokenizer>(Tokenizer::create(vocab_.data()).value());
  const LlguidanceBackend backend_{tokenizer_};
};

TEST_F(GrammarTest, ARegexIsOfTheWholeAnswer) {
  const auto grammar = compile(Kind::kRegex, "h(ello|i)").value();
  const auto matcher = grammar->new_matcher();
  const std::vector<int32_t> first = allowed(*matcher);
  EXPECT_EQ(std::vector<int32_t>({vocab_.id("h"), vocab_.id("he"), vocab_.id("hell"), vocab_.id("hello")}),
            first);
  ASSERT_TRUE(matcher->accept(vocab_.id("hell")).is_ok());
  EXPECT_EQ(allowed(*matcher), std::vector<int32_t>{vocab_.id("o")});
  EXPECT_FALSE(matcher->is_complete());
  ASSERT_TRUE(matcher->accept(vocab_.id("o")).is_ok());
  EXPECT_TRUE(matcher->is_complete());
  EXPECT_EQ(allowed(*matcher), tokenizer_->eos_ids());
}

TEST_F(GrammarTest, EveryEndTokenIsAllowedWhereTheAnswerMayEndAndNoOtherControlToken) {
  const auto matcher = compile(Kind::kRegex, "(?s:.*)").value()->new_matcher();
  const std::vector<int32_t> ids = allowed(*matcher);
  ASSERT_GT(tokenizer_->eos_ids().size(), 1u);
  for (int32_t id : ids) EXPECT_TRUE(ends(id) || !tokenizer_->is_control(id)) << vocab_.tokens[size_t(id)];
  EXPECT_EQ(std::ranges::count_if(ids, [&](int32_t id) { return ends(id); }),
            std::ptrdiff_t(tokenizer_->eos_ids().size()));
}

TEST_F(GrammarTest, ATokenThatIsNotAllowedIsRefused) {
  const auto matcher = compile(Kind::kRegex, "[0-9]+").value()->new_matcher();
  EXPECT_FALSE(matcher->accept(vocab_.id("hello")).is_ok());
}

TEST_F(GrammarTest, MatchersOfOneGrammarDoNotKnowOfOneAnother) {
  const auto grammar = compile(Kind::kJsonSchema, R"({"enum": ["a", "b"]})").value();
  const auto one = grammar->new_matcher(), other = grammar->new_matcher();
  const std::vector<int32_t> start = allowed(*one);
  ASSERT_TRUE(one->accept(vocab_.id("\"")).is_ok());
  EXPECT_NE(allowed(*one), start);
  EXPECT_EQ(allowed(*other), start);
  EXPECT_EQ(allowed(*grammar->new_matcher()), start);
}

TEST_F(GrammarTest, AnswersFollowTheSchema) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  const std::string schema = R"({"type": "object", "additionalProperties": false, "required": ["z", "a", "é"],
    "properties": {"z": {"type": "integer", "minimum": 3, "maximum": 12}, "a": {"enum": ["x", null, [1]]},
                   "é": {"$ref": "#/$defs/d"}}, "$defs": {"d": {"type": "string", "pattern": "^[a-c]{2}$"}}})";
  for (int i = 0; i < 20; ++i) {
    const std::string text = walk(Kind::kJsonSchema, schema, random);
    const json value = json::parse(text, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(value.is_object()) << text;
    EXPECT_EQ(value.size(), 3u) << text;
    EXPECT_TRUE(value.at("z") >= 3 && value.at("z") <= 12) << text;
    EXPECT_TRUE(value.at("a") == "x" || value.at("a").is_null() || value.at("a") == json::array({1})) << text;
    EXPECT_EQ(value.at("é").get<std::string>().find_first_not_of("abc"), std::string::npos) << text;
    EXPECT_LT(text.find("\"z\""), text.find("\"a\"")) << "the schema's order: " << text;
  }
}

TEST_F(GrammarTest, ItemsThatNeedNotBeUniqueAreNotRestricted) {
  std::mt19937 random(1);
  const std::string schema =
      R"({"type": "array", "items": {"const": 1}, "minItems": 2, "maxItems": 2, "uniqueItems": false})";
  EXPECT_EQ(json::parse(walk(Kind::kJsonSchema, schema, random)), json::array({1, 1}));
}

// A small model that may write blanks writes blanks.
TEST_F(GrammarTest, A_JS_6_WhitespaceIsBoundedAndNothingFollowsTheValue) {
  const auto grammar = compile(Kind::kJsonSchema, R"({"type": "object"})").value();
  const auto matcher = grammar->new_matcher();
  EXPECT_EQ(allowed(*matcher), std::vector<int32_t>{vocab_.id("{")}) << "no blank before the value";
  ASSERT_TRUE(matcher->accept(vocab_.id("{")).is_ok());
  const int32_t newline = vocab_.id("Ċ"), space = vocab_.id("Ġ");
  ASSERT_TRUE(matcher->accept(newline).is_ok());
  int spaces = 0;
  for (; spaces < 100; ++spaces) {
    if (std::ranges::count(allowed(*matcher), space) == 0) break;
    ASSERT_TRUE(matcher->accept(space).is_ok());
  }
  EXPECT_EQ(spaces, 20);
  EXPECT_EQ(std::ranges::count(allowed(*matcher), newline), 0);
  ASSERT_TRUE(matcher->accept(vocab_.id("}")).is_ok());
  EXPECT_TRUE(matcher->is_complete());
}

// With \u a key could be spelled in a second way, of which no property's schema knows.
TEST_F(GrammarTest, KeysHaveOneSpelling) {
  const auto matcher =
      compile(Kind::kJsonSchema, R"({"type": "object", "properties": {"a": {"type": "integer"}}})")
          .value()
          ->new_matcher();
  for (const char* token : {"{", "\"", "\\"}) ASSERT_TRUE(matcher->accept(vocab_.id(token)).is_ok());
  EXPECT_EQ(std::ranges::count(allowed(*matcher), vocab_.id("u")), 0);
  EXPECT_EQ(std::ranges::count(allowed(*matcher), vocab_.id("n")), 1);
}

TEST_F(GrammarTest, LarkAndItsEmbeddedJson) {
  std::mt19937 random(1);
  EXPECT_EQ(walk(Kind::kLark, "start: \"a\" b\nb: \"c\" | \"c\"", random), "ac");
  const std::string text = walk(Kind::kLark, R"(start: "x=" %json {"enum": [5, 6]})", random);
  EXPECT_TRUE(text == "x=5" || text == "x=6") << text;
  EXPECT_NE(refusal(Kind::kLark, R"(start: "%json" %json {"items": {"not": {}}})")
                .find("schema.items: the keyword not"),
            std::string::npos)
      << "checked as a schema that stands alone";
}

TEST_F(GrammarTest, GbnfIsRead) {
  std::mt19937 random(2);
  const std::string grammar = R"(# a comment
root   ::= object "\n"{2} ([a-c] | "\x41\u00e9\U0001F600" [^\x00-\x7F\u0080-\U0010FFFF]?)  # another
object ::=
  "{" ws ( Key-1 ":" ws value ("," ws Key-1 ":" ws value)* )? "}"
Key-1 ::= "\"" [a-z]{1,3} "\""
value ::= object | [0-9]+ |
ws ::= | " "
)";
  for (int i = 0; i < 20; ++i) {
    const std::string text = walk(Kind::kGbnf, grammar, random);
    if (text.ends_with("...")) continue;
    const size_t end = text.find("}\n\n");
    ASSERT_NE(end, std::string::npos) << text;
    const std::string rest = text.substr(end + 3);
    EXPECT_TRUE(rest == "a" || rest == "b" || rest == "c" || rest == "Aé😀") << text;
  }
  const std::string dot = walk(Kind::kGbnf, "root ::= a.b\na ::= \"x\"\nb ::= \"y\"", random);
  EXPECT_TRUE(dot.size() > 2 && dot.starts_with("x") && dot.ends_with("y")) << dot;
}

TEST_F(GrammarTest, GbnfThatIsWrongIsRefusedWithItsLine) {
  const std::pair<const char*, const char*> grammars[] = {
      {"", "no rule named root"},
      {"root ::= a", "the rule a is used and not defined"},
      {"root ::= \"a\"\nroot ::= \"b\"", "line 2: the rule root is defined twice"},
      {"root ::= (\"a\"", "without its )"},
      {"root ::= \"a\")", "without its ("},
      {"root ::= \"a", "without its closing quote"},
      {"\nroot ::= [a", "line 2: a character class without its ]"},
      {"root ::= []", "an empty character class"},
      {"root ::= \"\\q\"", "an escape that is none of"},
      {"root ::= \"\\xg1\"", "expected hexadecimal digits"},
      {"root ::= \"\\UFFFFFFFF\"", "beyond U+10FFFF"},
      {"root ::= \"a\"{x}", "expected {m}"},
      {"root ::= \"a\" | *", "expected a literal"},
      {"root ::= \"a\"**", "expected a literal"},
      {"root = \"a\"", "expected the name of a rule and ::="},
  };
  for (const auto& [grammar, message] : grammars)
    EXPECT_NE(refusal(Kind::kGbnf, grammar).find(message), std::string::npos)
        << grammar << ": " << refusal(Kind::kGbnf, grammar);
}

TEST_F(GrammarTest, RefusalsSayWhatIsWrong) {
  const std::pair<const char*, const char*> schemas[] = {
      {R"({"type": )", "EOF while parsing"},
      {R"(5)", "a schema is an object or a boolean"},
      {R"(false)", "the schema false allows nothing"},
      {R"({"type": "strin"})", "Invalid type: strin"},
      {R"({"not": {}})", "the keyword not is not available"},
      {R"({"properties": {"a": {"items": {"uniqueItems": true}}}})",
       "schema.properties.a.items: the keyword uniqueItems is not available"},
      {R"({"dependencies": {"a": ["b"]}})", "the keyword dependencies is not available"},
      {R"({"x-guidance": {"lenient": true}, "not": {}})", "not available"},
      {R"({"type": "string", "format": "telepathic"})", "Unknown format: telepathic"},
      {R"({"const": 9007199254740993})", "beyond 2^53"},
      {R"({"const": "a\u0000b"})", "schema.const: the control character U+0000 is not available"},
      {R"({"enum": [{"a\u007f": 1}]})", "the control character U+007F is not available"},
      {R"({"type": "string", "pattern": "^\\x01a\\u{7f}$"})", "U+0001"},
      {R"({"type": "string", "pattern": "^a\\"})", "a backslash at the end escapes nothing"},
      {R"({"type": "number", "multipleOf": -3})", "multipleOf -3 must be above 0"},
      {R"({"type": "object", "minProperties": 3, "required": ["a"]})", "minProperties 3 needs at least 2"},
      {R"({"$ref": "#/$defs/none"})", "Reference segment"},
      {R"({"$ref": "http://example.com/x"})", "Only absolute $ref's"},
      {R"({"type": "object", "properties": {"a": false}, "required": ["a"]})", "unsatisfiable"},
      {R"({"type": "object", "properties": {"uniqueItems": false}, "required": ["uniqueItems"]})",
       "unsatisfiable"},
      {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", "oneOf"},
  };
  for (const auto& [schema, message] : schemas)
    EXPECT_NE(refusal(Kind::kJsonSchema, schema).find(message), std::string::npos)
        << schema << ": " << refusal(Kind::kJsonSchema, schema);
  EXPECT_EQ(refusal(Kind::kJsonSchema, R"({"description": "x", "x-order": 3})"), "accepted");
  EXPECT_EQ(refusal(Kind::kJsonSchema, R"({"const": "\t\u2028"})"), "accepted");
  EXPECT_EQ(refusal(Kind::kJsonSchema, R"({"type": "string", "pattern": "^[^\\x00-\\x1f]+\\n"})"),
            "accepted");
  EXPECT_NE(refusal(Kind::kRegex, "a(b").find("unclosed group"), std::string::npos);
  EXPECT_NE(refusal(Kind::kRegex, "a\\").find("escapes nothing"), std::string::npos);
  EXPECT_EQ(refusal(Kind::kRegex, "a\\\\"), "accepted");
  EXPECT_NE(refusal(Kind::kLark, "foo: \"a\"").find("no start rule"), std::string::npos);
}

TEST_F(GrammarTest, A_JS_1_APatternThatIsAcceptedIsEnforced) {
  std::mt19937 random(1);
  EXPECT_EQ(walk(Kind::kJsonSchema, R"({"type": "string", "pattern": "^hello there indeed\\!$"})", random),
            R"("hello there indeed!")");
  EXPECT_NE(refusal(Kind::kJsonSchema, R"({"type": "string", "pattern": "(?=x)y"})").find("look-ahead"),
            std::string::npos);
}

TEST_F(GrammarTest, A_JS_2_AnEnumBehindARefAndARefIntoItems) {
  std::mt19937 random(1);
  const std::string one = R"({"$ref": "#/$defs/e", "$defs": {"e": {"enum": ["only"]}}})";
  EXPECT_EQ(walk(Kind::kJsonSchema, one, random), R"("only")");
  const std::string into_items =
      R"({"type": "array", "minItems": 2, "maxItems": 2, "items": {"anyOf": [{"const": 7}]},
          "prefixItems": [{"$ref": "#/items/anyOf/0"}]})";
  const json pair = json::parse(walk(Kind::kJsonSchema, into_items, random), nullptr, false);
  EXPECT_EQ(pair, json::array({7, 7}));
}

TEST_F(GrammarTest, A_JS_3_RecursionWithPatternsAndNoOtherProperties) {
  const std::string schema = R"({"$ref": "#/$defs/r", "$defs": {"r": {"type": "object",
    "properties": {"id": {"type": "string", "pattern": "^[a-z]{1,3}$"},
                   "childresource": {"type": "array", "maxItems": 1, "items": {"$ref": "#/$defs/r"}}},
    "required": ["id"], "additionalProperties": false}}})";
  std::mt19937 random(3);
  for (int i = 0; i < 5; ++i) {
    const std::string text = walk(Kind::kJsonSchema, schema, random);
    EXPECT_TRUE(text.ends_with("...") || json::parse(text, nullptr, false).is_object()) << text;
  }
}

std::string repeated(const std::string& text, int n) {
  std::string result;
  for (int i = 0; i < n; ++i) result += text;
  return result;
}

// Accepted or refused, but neither a crash nor a long computation: the test's own time limit fails it.
TEST_F(GrammarTest, A_JS_4_TextsThatBreakParsers) {
  for (const std::string& pattern :
       {std::string("(?<=x)*"), std::string("*"), std::string("a{2,1}"), repeated("(", 10000),
        repeated("(", 200) + "a" + repeated(")+", 200), std::string("((a{1,1000}){1,1000}){1,1000}"),
        std::string("(a+)+$"), std::string("(?:.*a.{30})"), repeated("[ab]c?", 10000), std::string("[\\s\\S"),
        std::string("\xff", 1), std::string("a\0b", 3)}) {
    refusal(Kind::kRegex, pattern);
    refusal(Kind::kLark, "start: " + pattern);
    refusal(Kind::kLark, "start: /" + pattern + "/");
    refusal(Kind::kJsonSchema, json{{"type", "string"}, {"pattern", pattern}}.dump(
                                   -1, ' ', false, json::error_handler_t::replace));
  }
  EXPECT_NE(refusal(Kind::kLark, "start: " + repeated("(", 60000)).find("nested"), std::string::npos);
  EXPECT_NE(refusal(Kind::kGbnf, "root ::= " + repeated("(", 60000)).find("nested"), std::string::npos);
  EXPECT_NE(refusal(Kind::kJsonSchema, repeated(R"({"items":)", 7000)).find("recursion"), std::string::npos);
  std::string chain = "start: r0\n";
  for (int i = 0; i < 2500; ++i) chain += fmt::format("r{}: \"a\" r{}\n", i, i + 1);
  EXPECT_EQ(refusal(Kind::kLark, chain + "r2500: \"b\""), "accepted") << "deep, on a deep stack";
}

TEST_F(GrammarTest, A_JS_5_SchemasThatExplode) {
  json tree = {{"type", "string"}};
  for (int i = 0; i < 12; ++i) tree = {{"oneOf", {{{"type", "array"}, {"items", tree}}, {{"type", "null"}}}}};
  refusal(Kind::kJsonSchema, tree.dump());
  json values = json::array();
  for (int i = 0; i < 3000; ++i) values.push_back(fmt::format("value {}", i));
  EXPECT_EQ(refusal(Kind::kJsonSchema, json{{"enum", values}}.dump()), "accepted");
  json patterns = json::array();
  for (int i = 0; i < 40; ++i) patterns.push_back({{"pattern", fmt::format("c.*{}", i)}});
  EXPECT_NE(refusal(Kind::kJsonSchema, json{{"allOf", patterns}}.dump()).find("patterns"), std::string::npos);
  for (const char* schema :
       {R"({"type": "integer", "multipleOf": 999983})", R"({"type": "string", "minLength": 1000000000})",
        R"({"type": "array", "minItems": 1000000000})", R"({"$ref": "#"})", R"({"allOf": [{"$ref": "#"}]})",
        R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"], "type": "object"})"})
    refusal(Kind::kJsonSchema, schema);
  const std::string large = json{{"description", std::string(1 << 20, 'x')}}.dump();
  EXPECT_NE(refusal(Kind::kJsonSchema, large).find("at most 65536 are allowed"), std::string::npos);
}

class CountingBackend : public GrammarBackend {
 public:
  explicit CountingBackend(const GrammarBackend& backend) : backend_(backend) {}
  Result<std::shared_ptr<const Grammar>> compile(const GrammarSpec& spec) const override {
    ++compiled;
    return backend_.compile(spec);
  }
  mutable int compiled = 0;

 private:
  const GrammarBackend& backend_;
};

TEST_F(GrammarTest, TheLastGrammarsAreKept) {
  const CountingBackend counting(backend_);
  const GrammarCache cache(counting, 2);
  const GrammarSpec a{Kind::kRegex, "a"}, b{Kind::kRegex, "b"}, other{Kind::kLark, "start: \"a\""};
  const auto first = cache.compile(a).value();
  ASSERT_TRUE(cache.compile(b).is_ok());
  EXPECT_EQ(cache.compile(a).value(), first);
  EXPECT_EQ(counting.compiled, 2);
  ASSERT_TRUE(cache.compile(other).is_ok());  // in place of b
  EXPECT_EQ(cache.compile(a).value(), first);
  EXPECT_EQ(counting.compiled, 3);
  ASSERT_TRUE(cache.compile(b).is_ok());
  EXPECT_EQ(counting.compiled, 4);
  const GrammarSpec bad{Kind::kRegex, "("};
  EXPECT_FALSE(cache.compile(bad).is_ok());
  EXPECT_FALSE(cache.compile(bad).is_ok());
  EXPECT_EQ(counting.compiled, 6);
}

}  // namespace
}  // namespace gapless
