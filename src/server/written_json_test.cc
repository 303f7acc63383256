// Parts of JSON passed on as they were written.
#include <gtest/gtest.h>

#include "server/written_json.h"

namespace gapless {
namespace {

using nlohmann::json;

std::vector<std::string> elements(const std::string& text) {
  const json value = json::parse(text);
  std::vector<std::string> out;
  for (const WrittenJson& element : written_elements({value, text})) {
    EXPECT_EQ(json::parse(element.text), element.value);
    out.emplace_back(element.text);
  }
  return out;
}

std::string member(const std::string& text, const std::string& key) {
  const json value = json::parse(text);
  return written_member({value, text}, key);
}

TEST(WrittenJson, ElementsOfArrays) {
  EXPECT_EQ(elements("[]"), std::vector<std::string>());
  EXPECT_EQ(elements(" [ ] "), std::vector<std::string>());
  EXPECT_EQ(elements(R"( [1,"a,]\"\\",{"x":[1,2],"}":"["},[],null] )"),
            (std::vector<std::string>{"1", R"("a,]\"\\")", R"({"x":[1,2],"}":"["})", "[]", "null"}));
}

TEST(WrittenJson, MembersOfObjects) {
  const std::string text = R"({"b" : {"z":1 , "a":2},"a:":"\"a\":3","a":4,"b2":[":",{"a":5}],"c":-1e5})";
  EXPECT_EQ(member(text, "b"), R"( {"z":1 , "a":2})");
  EXPECT_EQ(member(text, "a"), "4");
  EXPECT_EQ(member(text, "a:"), R"("\"a\":3")");
  EXPECT_EQ(member(text, "c"), "-1e5");
  EXPECT_EQ(member(R"({"a":1,"a":2})", "a"), "2") << "as the parser has it";
  EXPECT_EQ(member(R"({"\u0061":{"x":1}})", "a"), R"({"x":1})") << "a key with escapes";
  EXPECT_EQ(member(R"({"a" : 7})", "a"), " 7");
}

}  // namespace
}  // namespace gapless
