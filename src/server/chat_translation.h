// What the other chat APIs share on their way in: their bodies become the body of the chat request that asks
// the same, and parse_chat_request does the rest.
#pragma once

#include <string>
#include <vector>

#include "server/field_reader.h"
#include "server/generation_plan.h"
#include "server/json_writer.h"
#include "server/written_json.h"

namespace gapless {

// A message of the chat. JSON texts are passed on as the client wrote them.
struct ChatTurn {
  struct Call {
    std::string id, name, arguments;  // arguments: JSON, an object or a string that holds one
  };
  std::string role, text;
  std::string reasoning = {};    // of an assistant
  std::vector<Call> calls = {};  // of an assistant
  std::string call_id = {};      // of a tool: whose result it is
};

// A body under construction: an object that end() closes.
class ChatBodyWriter {
 public:
  ChatBodyWriter() { writer_.begin_object(); }

  JsonWriter& writer() { return writer_; }
  // Those members of `body` that mean the same in a chat: the table is in the .cc file.
  void pass_on(const JsonBody& body);
  void messages(const std::vector<ChatTurn>& turns);
  // "tools", if the body has them: read_tool checks each and calls tool().
  void tools(FieldReader& fields, const JsonBody& body,
             void (*read_tool)(FieldReader& fields, const WrittenJson& tool, const std::string& where,
                               ChatBodyWriter& chat));
  // parameters: JSON text, or empty.
  void tool(const std::string& name, const std::string& description, const std::string& parameters);
  // "tool_choice" that names a function.
  void named_tool(const std::string& name);
  // "response_format": an answer of this JSON schema.
  void json_schema(const std::string& schema);
  std::string end() {
    writer_.end_object();
    return std::move(text_);
  }

 private:
  std::string text_;
  JsonWriter writer_{text_};
};

// A member that must be a string; "" and an error that names `where`.`member` otherwise.
std::string required_string(FieldReader& fields, const std::string& field, const nlohmann::json& object,
                            const std::string& where, const char* member);
// The same, but a member that is absent or null is "".
std::string optional_string(FieldReader& fields, const std::string& field, const nlohmann::json& object,
                            const std::string& where, const char* member);
// The "type" of an object, "" where it has none.
std::string type_of(const nlohmann::json& object);
// The texts of `content`, joined: a string, or an array of objects {"type", "text"} whose type is one of
// `types`. `where`: its name in messages.
std::string text_content(FieldReader& fields, const std::string& field, const nlohmann::json& content,
                         const std::string& where, const std::vector<std::string_view>& types);
// parse_chat_request of a body that was translated. format_field: what this API calls response_format.
Result<GenerationPlan> parse_translated(std::string chat_body, const ModelFacts& model,
                                        const RequestLimits& limits, const char* format_field);

}  // namespace gapless
