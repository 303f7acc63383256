#include "apps/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "base/check.h"

namespace gapless {

double student_t_975(int degrees) {
  CHECK_GE(degrees, 1);
  constexpr double kFew[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228};
  if (degrees <= int(std::size(kFew))) return kFew[degrees - 1];
  // Abramowitz and Stegun, 26.7.5: an expansion around the normal quantile.
  const double z = 1.959964, n = degrees;
  const double z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z;
  return z + (z3 + z) / (4 * n) + (5 * z5 + 16 * z3 + 3 * z) / (96 * n * n) +
         (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * n * n * n);
}

RatioInterval ratio_interval(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> logs;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    if (a[i] > 0 && b[i] > 0) logs.push_back(std::log(b[i] / a[i]));
  RatioInterval out{.pairs = int(logs.size()), .high = std::numeric_limits<double>::infinity()};
  if (logs.empty()) return out;
  double mean = 0, squares = 0;
  for (const double x : logs) mean += x / double(logs.size());
  for (const double x : logs) squares += (x - mean) * (x - mean);
  out.ratio = std::exp(mean);
  if (logs.size() < 2) return out;
  const double n = double(logs.size());
  const double half = student_t_975(int(logs.size()) - 1) * std::sqrt(squares / (n - 1) / n);
  out.low = std::exp(mean - half);
  out.high = std::exp(mean + half);
  return out;
}

std::string conclusion(const RatioInterval& r, const std::string& above, const std::string& below) {
  if (r.pairs < kFewestPairs)
    return fmt::format("no conclusion: {} pair{} too few to tell, take {} or more (--pairs)", r.pairs,
                       r.pairs == 1 ? " is" : "s are", kFewestPairs);
  if (r.low > 1) return above;
  if (r.high < 1) return below;
  return "no conclusion: the interval includes 1, the loops may be equally fast (more --pairs make it "
         "narrower)";
}

}  // namespace gapless
