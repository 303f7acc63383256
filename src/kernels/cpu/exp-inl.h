// exp on the 16 lanes of a cpu/vec_*.h, which is included first.
#pragma once

namespace gapless {
namespace {

// numeric::exp, 16 at a time.
inline V exp(V x) {
  using namespace numeric::exp_constants;
  x = max(set1(kLow), x);
  x = min(set1(kHigh), x);
  const V t = fma(x, set1(kLog2e), set1(kRound));
  const V n = sub(t, set1(kRound));
  V r = fma(n, set1(-kLn2High), x);
  r = fma(n, set1(-kLn2Low), r);
  V p = fma(set1(kP0), r, set1(kP1));
  p = fma(p, r, set1(kP2));
  p = fma(p, r, set1(kP3));
  p = fma(p, r, set1(kP4));
  p = fma(p, r, set1(kP5));
  p = add(fma(p, mul(r, r), r), set1(1.f));
  return scale_by_power(p, n, t);
}

}  // namespace
}  // namespace gapless
