// The load generator: its prompts, its reader of responses, and a run against a small server of known
// behaviour.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "apps/load_client.h"
#include "apps/sse_response.h"
#include "apps/workload.h"

namespace gapless {
namespace {

TEST(Workload, DrawsWhatPythonDraws) {
  EXPECT_EQ(make_prompts({1, 8, 0, 1})[0], "problem kid teacher life home group law teacher");
  EXPECT_EQ(make_prompts({2, 4, 2, 5}),
            (std::vector<std::string>{"level home guy eye", "level home result guy"}));
  PythonRandom large((uint64_t{1} << 40) + 7);  // two words of seed
  for (uint32_t i = 0; i < 8; ++i) large.below(100);
  EXPECT_DOUBLE_EQ(large.uniform(), 0.126750756180395);
  PythonRandom zero(0);
  EXPECT_DOUBLE_EQ(zero.uniform(), 0.8444218515250481);
  EXPECT_EQ(zero.next_u32(), 3255389356u);
}

TEST(Workload, PoissonArrivalsHaveTheRate) {
  const std::vector<double> times = poisson_arrivals(20000, 50, 3);
  EXPECT_EQ(times[0], 0);
  EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
  EXPECT_NEAR(times.back(), 400, 400 * 0.03);
  // Exponential gaps: the share longer than the mean is 1 / e.
  int longer = 0;
  for (size_t i = 1; i < times.size(); ++i) longer += times[i] - times[i - 1] > 1.0 / 50;
  EXPECT_NEAR(longer / 20000.0, 0.3679, 0.015);
}

constexpr std::string_view kChunked =
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/event-stream\r\n\r\n"
    "10\r\ndata: {\"a\":1}\n\nd\r\nf\r\nata: {\"b\":2}\n\n\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";

// However the bytes are cut, the same events come out.
TEST(SseResponse, DoesNotDependOnHowBytesArrive) {
  for (size_t step = 1; step <= kChunked.size(); ++step) {
    SseResponse response;
    std::vector<std::string> events;
    for (size_t at = 0; at < kChunked.size(); at += step) {
      response.feed(kChunked.substr(at, step), [&](std::string_view json) { events.emplace_back(json); });
    }
    EXPECT_EQ(events, (std::vector<std::string>{"{\"a\":1}", "{\"b\":2}"})) << step;
    EXPECT_TRUE(response.done());
    EXPECT_EQ(response.status(), 200);
  }
}

TEST(SseResponse, KeepsTheTextOfAnError) {
  SseResponse response;
  response.feed("HTTP/1.1 429 Too Many Requests\r\ncontent-length: 17\r\n\r\n{\"error\":\"queue\"}",
                [](std::string_view) { FAIL(); });
  EXPECT_EQ(response.status(), 429);
  EXPECT_TRUE(response.done());
  EXPECT_EQ(response.error_text(), "{\"error\":\"queue\"}");
}

TEST(SseResponse, RefusesWhatIsNotHttp) {
  SseResponse response;
  response.feed("SSH-2.0-OpenSSH\r\n", [](std::string_view) {});
  EXPECT_TRUE(response.broken());
  SseResponse endless;
  endless.feed(std::string((1 << 20) + 2, 'x'), [](std::string_view) {});
  EXPECT_TRUE(endless.broken());
}

TEST(LoadClient, ReadsEvents) {
  LoadRecord record;
  note_event(R"({"choices":[{"text":"a"}],"usage":null})", 1.0, record);
  note_event(R"({"choices": [ ], "usage": {"prompt_tokens": 5, "completion_tokens": 7}})", 2.0, record);
  EXPECT_EQ(record.stamps, std::vector<double>{1.0});
  EXPECT_EQ(record.prompt_tokens, 5);
  EXPECT_EQ(record.completion_tokens, 7);
}

TEST(LoadClient, ParsesUrls) {
  EXPECT_EQ(parse_url("http://localhost:81/v1")->port, "81");
  EXPECT_EQ(parse_url("http://localhost")->port, "80");
  EXPECT_EQ(parse_url("http://[::1]:8080")->host, "::1");
  for (const char* bad : {"https://x:1", "localhost:80", "http://", "http://x:y"})
    EXPECT_FALSE(parse_url(bad).is_ok()) << bad;
}

// Answers connections one after another: the second with 503, the third not at all, the others with three
// events.
class SmallServer {
 public:
  explicit SmallServer(int connections) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(listener_, 64), 0);
    socklen_t size = sizeof address;
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, connections] {
      for (int i = 0; i < connections; ++i) serve(i);
    });
  }
  ~SmallServer() {
    thread_.join();
    close(listener_);
  }
  std::string port() const { return std::to_string(port_); }
  const std::vector<std::string>& bodies() const { return bodies_; }

 private:
  void serve(int i) {
    const int fd = accept(listener_, nullptr, nullptr);
    std::string request;
    char buffer[4096];
    while (request.find("\r\n\r\n") == std::string::npos || !request.ends_with("}")) {
      const ssize_t n = recv(fd, buffer, sizeof buffer, 0);
      if (n <= 0) break;
      request.append(buffer, size_t(n));
    }
    bodies_.push_back(request.substr(request.find("\r\n\r\n") + 4));
    std::string answer =
        "HTTP/1.1 200 OK\r\n\r\ndata: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: "
        "{\"choices\":[{\"text\":\"b\"}]}\n\n"
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";
    if (i == 1) answer = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy";
    if (i == 2) answer.clear();
    if (!answer.empty()) {
      EXPECT_EQ(send(fd, answer.data(), answer.size(), MSG_NOSIGNAL), ssize_t(answer.size()));
    }
    close(fd);
  }
  int listener_ = -1, port_ = 0;
  std::vector<std::string> bodies_;
  std::thread thread_;
};

TEST(LoadClient, RecordsEachRequest) {
  std::vector<LoadRecord> records;
  std::vector<std::string> bodies;
  {
    SmallServer server(4);
    const LoadTarget target{"127.0.0.1", server.port(), "/v1/completions", ""};
    std::vector<LoadRequest> requests;
    for (int i = 0; i < 4; ++i) requests.push_back({"{\"i\":" + std::to_string(i) + "}", 0});
    records = run_load(target, requests, {.concurrency = 1, .timeout = 20}).value();
    bodies = server.bodies();
  }
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(bodies[3], "{\"i\":3}");
  EXPECT_EQ(records[0].error, "");
  EXPECT_EQ(records[0].stamps.size(), 2u);
  EXPECT_EQ(records[0].completion_tokens, 2);
  EXPECT_EQ(records[1].error, "HTTP 503: busy");
  EXPECT_EQ(records[2].error, "the connection closed without an answer");
  EXPECT_EQ(records[3].prompt_tokens, 4);
  EXPECT_GE(records[3].start, records[0].stamps.back());  // one at a time
}

TEST(LoadClient, ReportsARefusedConnection) {
  const LoadTarget target{"127.0.0.1", "1", "/v1/completions", ""};
  const auto records = run_load(target, {{"{}", 0}}, {.concurrency = 1, .timeout = 5}).value();
  EXPECT_NE(records[0].error.find("Connection refused"), std::string::npos) << records[0].error;
}

}  // namespace
}  // namespace gapless
