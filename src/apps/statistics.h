// What repeated measurements say about a ratio.
#pragma once

#include <string>
#include <vector>

namespace gapless {

// The 97.5 % quantile of Student's t with this many degrees of freedom (>= 1): what a two-sided interval of
// 95 % needs. Within 0.1 %.
double student_t_975(int degrees);

struct RatioInterval {
  int pairs = 0;
  double ratio = 0;          // geometric mean of b / a
  double low = 0, high = 0;  // 95 % of the intervals made like this contain the true ratio

  // One pair tells nothing of how much pairs differ.
  bool has_interval() const { return pairs >= 2; }

  friend bool operator==(const RatioInterval&, const RatioInterval&) = default;
};
// a[i] and b[i] were measured right after one another, so what disturbs both cancels. Student's t on the
// logarithms of b[i] / a[i]. Pairs in which one is not positive say nothing and are left out; with fewer than
// two the interval is all there is: 0 to infinity.
RatioInterval ratio_interval(const std::vector<double>& a, const std::vector<double>& b);

// Student's t takes the logarithms for normally distributed; fewer pairs than this show nothing of that.
inline constexpr int kFewestPairs = 5;

// What follows from the interval: `above` when it lies above 1, `below` when it lies below, else "no
// conclusion" and why.
std::string conclusion(const RatioInterval& r, const std::string& above, const std::string& below);

}  // namespace gapless
