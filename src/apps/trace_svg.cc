#include "apps/trace_svg.h"

#include <algorithm>
#include <cmath>
#include <iterator>

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

// What a page's own colours decide: paper, letters and lines are light or dark as the reader's are. Letters
// upon a coloured box are always dark (class on); waiting is a shade of the paper.
constexpr const char* kStyle = R"(<style>
.paper{fill:#fff} text{fill:#222} path{stroke:#ddd} .step{stroke:#fff} .scale{fill:#666} .pale{fill:#888;fill-opacity:.18}
@media(prefers-color-scheme:dark){
.paper{fill:#16191d} text{fill:#ddd} path{stroke:#3a3f46} .step{stroke:#16191d} .scale{fill:#999}
}
text.on{fill:#111}
</style>)";

// Work of the device is green, waiting is pale; what the host works on has a colour of its own.
std::string_view colour_of(const std::string& name) {
  constexpr std::pair<const TraceName*, const char*> kColours[] = {
      {&trace::kDecode, "#6cbf84"},  {&trace::kExtend, "#2f8f6f"}, {&trace::kMixed, "#4fa79a"},
      {&trace::kWake, "#e8923a"},    {&trace::kIngest, "#8a6fb0"}, {&trace::kCompose, "#3f7fc4"},
      {&trace::kLaunch, "#7cc3ec"},  {&trace::kRecall, "#c43f6b"}, {&trace::kStall, "#a02c2c"},
      {&trace::kProcess, "#cf86cb"}, {&trace::kSend, "#7a4fa3"},   {&trace::kPlan, "#5b8def"},
      {&trace::kDeliver, "#e07f7f"}, {&trace::kBurst, "#cdb67d"},  {&trace::kRequest, "#97824a"},
  };
  for (const auto& [known, colour] : kColours)
    if (name == known->text) return colour;
  return "#9a9a9a";
}

bool is_pale(const std::string& name) {
  return name == trace::kWait.text || name == trace::kIdle.text;
}

std::string filling(const std::string& name) {
  return is_pale(name) ? R"(class="pale")" : fmt::format(R"(fill="{}")", colour_of(name));
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
        R"( font-family="sans-serif" font-size="11">{2}<rect class="paper" width="100%" height="100%"/>)"
        "\n",
        kLeft + kWidth + 8, height_ + 44, kStyle);
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
  // With a legend, because most boxes are too narrow for their names.
  std::string finish() && {
    double x = kLeft;
    for (const std::string& name : names_) {
      print(R"(<rect x="{:.0f}" y="{:.0f}" width="9" height="9" {}/><text x="{:.0f}" y="{:.0f}">{}</text>)"
            "\n",
            x, height_ + 28, filling(name), x + 13, height_ + 37, escaped(name));
      x += 30 + kLetter * double(name.size());
    }
    return std::move(out_) + "</svg>\n";
  }

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
    step *= step * 5 <= most ? 5 : step * 2 <= most ? 2 : 1;
    for (int i = 0; x_of(window_.begin + step * i) < kLeft + kWidth - 30; i++) {
      const double x = x_of(window_.begin + step * i);
      print(
          R"(<path d="M{0:.1f} {1:.0f}V{2:.0f}"/><text class="scale" x="{0:.1f}" y="{3:.0f}">{4:g} ms</text>)"
          "\n",
          x, kTop - 4, height_ + 4, height_ + 16, step * i / 1e3);
    }
  }
  void box(const FileSpan& span, double lane_y, bool inner, bool device) {
    const double x = x_of(span.begin), width = std::max(0.4, x_of(span.end) - x);
    const double y = lane_y + (inner ? kBox / 2 : 0), height = inner ? kBox / 2 : kBox;
    if (std::find(names_.begin(), names_.end(), span.name) == names_.end()) names_.push_back(span.name);
    std::string label = span.name;
    if (device && span.batch != kNoTraceArg) label += fmt::format(" {}", span.batch);
    print(
        R"(<rect x="{:.1f}" y="{:.0f}" width="{:.1f}" height="{:.0f}" {}{}><title>{} {:.1f} us</title></rect>)",
        x, y, width, height, filling(span.name), device ? R"( class="step")" : "", escaped(label),
        span.length());
    // In the upper half, where nothing lies upon it.
    if (double(label.size()) * kLetter < width && !inner)
      print(R"(<text{} x="{:.1f}" y="{:.0f}" font-size="10">{}</text>)",
            is_pale(span.name) ? "" : R"( class="on")", x + 3, y + 10, escaped(label));
    out_ += "\n";
  }

  const TraceWindow window_;
  const double scale_, height_;
  size_t lanes_ = 0;
  std::vector<std::string> names_;  // that were drawn
  std::string out_;
};

// Whole microseconds as milliseconds, as one would type them: 100000000, 0.25.
std::string decimal(double ms) {
  std::string text = fmt::format("{:.3f}", ms);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

}  // namespace

TraceWindow typical_steps(const TraceFile& trace, const TraceReport& report, size_t count) {
  std::vector<FileSpan> steps = device_steps(trace);
  if (report.steady.steps > 0) {
    std::erase_if(steps, [&](const FileSpan& step) {
      return step.begin < report.steady.longest_begin || step.end > report.steady.longest_end;
    });
  }
  if (steps.size() <= count) return {steps.front().begin, steps.back().end};
  std::vector<TraceWindow> windows;  // from a step's begin to that of the step after `count`
  for (size_t i = 0; i + count < steps.size(); i++)
    windows.push_back({steps[i].begin, steps[i + count].begin});
  const auto median = windows.begin() + ptrdiff_t(windows.size() / 2);
  std::nth_element(windows.begin(), median, windows.end(), [](const TraceWindow& a, const TraceWindow& b) {
    return a.end - a.begin < b.end - b.begin;
  });
  return *median;
}

Result<std::string> trace_svg(const TraceFile& trace, const TraceWindow& window) {
  size_t spans = 0, lanes = 0;
  for (const FileThread& thread : trace.threads) {
    const size_t here = within(thread, window).size();
    spans += here;
    lanes += here > 0;
  }
  const double ms = (window.end - window.begin) / 1e3;
  if (spans == 0)
    return Status::invalid("nothing was recorded in the {} ms from {} ms on (--from, --ms)", decimal(ms),
                           decimal(window.begin / 1e3));
  if (spans > kMostSpans)
    return Status::invalid("--ms {} covers {} spans, {} can be told apart: draw less", decimal(ms), spans,
                           kMostSpans);
  Picture picture(window, lanes);
  for (const FileThread& thread : trace.threads)
    if (const auto found = within(thread, window); !found.empty())
      picture.lane(thread.name, found, thread.name == trace::kDevice);
  const std::vector<FileSpan> steps = device_steps(trace);
  for (size_t i = 1; i < steps.size(); i++) {
    const double begin = std::max(steps[i - 1].end, window.begin), end = std::min(steps[i].begin, window.end);
    if (begin < end && gap_between(steps[i - 1], steps[i]) > 0) picture.shade(begin, end);
  }
  return std::move(picture).finish();
}

}  // namespace gapless
