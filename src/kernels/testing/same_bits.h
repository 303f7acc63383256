// Compares an op of every table with the reference, bit for bit.
#pragma once

#include "kernels/testing/op_runner.h"

namespace gapless::testing {

// Rows of a step: `begin` rows belong to others, `rows` are there, more would fit.
struct StepRows {
  int32_t begin, count, cap;
  StepRows(int32_t rows, int32_t begin) : begin(begin), count(begin + rows), cap(rows + 4) {}
  Rows rows() const { return {&count, begin, cap}; }
};

// Runs `push` on the reference and on every fast table in every order, each on fresh copies of `outputs`, and
// compares all bytes.
template <class Outputs, class Push>
Outputs expect_same(const Outputs& outputs, const Push& push, const char* what) {
  const auto run = [&](Isa isa, Order order) {
    Outputs copy = outputs;
    OpList ops;
    push(*op_table(isa), ops, copy);
    OpRunner().run(ops, order);
    return copy;
  };
  Outputs expected = run(Isa::kReference, Order::kForward);
  for (Isa isa : fast_isas())
    for (Order order : kOrders) EXPECT_TRUE(run(isa, order) == expected) << isa_name(isa) << " " << what;
  return expected;
}

}  // namespace gapless::testing
