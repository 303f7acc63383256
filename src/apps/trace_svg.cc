#include "apps/trace_svg.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "apps/trace_report.h"
#include "base/trace_names.h"

namespace gapless {

namespace {

constexpr double kLeft = 92, kWidth = 868, kTop = 24, kLane = 34, kBox = 24, kLetter = 6.2;
constexpr size_t kMostSpans = 250;  // about 200 bytes each

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out += c;
    }
  }
  return out;
}

// Work of the device is green, waiting is pale, everything else has a colour of its own name.
const char* colour_of(const FileSpan& span, bool device) {
  constexpr const char* kColours[] = {"#f2b36b", "#7fb3e6", "#d99ad6", "#e58a8a",
                                      "#9fc5a8", "#c9b27c", "#9aa5e0"};
  if (device) return span.name == trace::kDecode.text ? "#6cbf84" : "#3f9d8f";
  if (span.name == trace::kWait.text || span.name == trace::kIdle.text) return "#ececec";
  size_t sum = 0;
  for (const char c : span.name) sum = sum * 31 + static_cast<unsigned char>(c);
  return kColours[sum % std::size(kColours)];
}

std::vector<const FileSpan*> within(const FileThread& thread, const TraceWindow& window) {
  std::vector<const FileSpan*> spans;
  for (const FileSpan& span : thread.spans)
    if (span.end > window.begin && span.begin < window.end) spans.push_back(&span);
  return spans;
}

class Picture {
 public:
  Picture(const TraceWindow& window, size_t lanes)
      : window_(window), scale_(kWidth / (window.end - window.begin)), height_(kTop + kLane * double(lanes)) {
    print(
        R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0:.0f} {1:.0f}" width="{0:.0f}" height="{1:.0f}")"
        R"( font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="#fff"/>)"
        "\n",
        kLeft + kWidth + 8, height_ + 24);
    axis();
  }

  void lane(const std::string& name, const std::vector<const FileSpan*>& spans, bool device) {
    const double y = kTop + kLane * double(lanes_++);
    print(R"(<text x="4" y="{:.0f}">{}</text>)"
          "\n",
          y + 16, escaped(name));
    double outer_end = -1;
    for (const FileSpan* span : spans) {
      const bool inner = span->end <= outer_end;  // within the one before: drawn lower, upon it
      if (!inner) outer_end = span->end;
      box(*span, y, inner, device);
    }
  }
  void shade(double begin, double end) {
    print(
        R"(<rect x="{:.1f}" y="{:.0f}" width="{:.1f}" height="{:.0f}" fill="#d33" fill-opacity=".16"><title>gap {:.1f} us</title></rect>)"
        "\n",
        x_of(begin), kTop - 4, std::max(0.3, (end - begin) * scale_), height_ - kTop, end - begin);
  }
  std::string finish() && { return std::move(out_) + "</svg>\n"; }

 private:
  template <class... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }
  double x_of(double us) const {
    return kLeft + (std::clamp(us, window_.begin, window_.end) - window_.begin) * scale_;
  }

  void axis() {
    const double most = (window_.end - window_.begin) / 6;
    double step = std::pow(10, std::floor(std::log10(most)));
    if (step * 5 <= most)
      step *= 5;
    else if (step * 2 <= most)
      step *= 2;
    for (int i = 0; window_.begin + step * i <= window_.end; i++) {
      const double x = x_of(window_.begin + step * i);
      print(
          R"(<path d="M{0:.1f} {1:.0f}V{2:.0f}" stroke="#ddd"/><text x="{0:.1f}" y="{3:.0f}" fill="#666">{4:g} ms</text>)"
          "\n",
          x, kTop - 4, height_ + 4, height_ + 16, step * i / 1e3);
    }
  }
  void box(const FileSpan& span, double lane_y, bool inner, bool device) {
    const double x = x_of(span.begin), width = std::max(0.4, x_of(span.end) - x);
    const double y = lane_y + (inner ? kBox / 2 : 0), height = inner ? kBox / 2 : kBox;
    std::string label = span.name;
    if (device && span.batch != kNoTraceArg) label += fmt::format(" {}", span.batch);
    print(
        R"(<rect x="{:.1f}" y="{:.0f}" width="{:.1f}" height="{:.0f}" fill="{}"><title>{} {:.1f} us</title></rect>)",
        x, y, width, height, colour_of(span, device), escaped(label), span.length());
    if (double(label.size()) * kLetter < width && !inner)
      print(R"(<text x="{:.1f}" y="{:.0f}">{}</text>)", x + 3, y + 16, escaped(label));
    out_ += "\n";
  }

  const TraceWindow window_;
  const double scale_, height_;
  size_t lanes_ = 0;
  std::string out_;
};

}  // namespace

Result<std::string> trace_svg(const TraceFile& trace, const TraceWindow& window) {
  size_t spans = 0, lanes = 0;
  for (const FileThread& thread : trace.threads) {
    const size_t here = within(thread, window).size();
    spans += here;
    lanes += here > 0;
  }
  const double ms = (window.end - window.begin) / 1e3;
  if (spans == 0)
    return Status::invalid("nothing was recorded in the {:g} ms from {:g} ms on (--from, --ms)", ms,
                           window.begin / 1e3);
  if (spans > kMostSpans)
    return Status::invalid("--ms {:g} covers {} spans, {} can be told apart: draw less", ms, spans,
                           kMostSpans);
  Picture picture(window, lanes);
  for (const FileThread& thread : trace.threads)
    if (const auto found = within(thread, window); !found.empty())
      picture.lane(thread.name, found, thread.name == trace::kDevice);
  const std::vector<FileSpan> steps = device_steps(trace);
  for (size_t i = 1; i < steps.size(); i++) {
    const double begin = std::max(steps[i - 1].end, window.begin), end = std::min(steps[i].begin, window.end);
    if (begin < end) picture.shade(begin, end);
  }
  return std::move(picture).finish();
}

}  // namespace gapless
