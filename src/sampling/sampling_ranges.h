// The ranges of sampling parameters, for requests that no HTTP parser has looked at. A pure function: any
// thread.
#pragma once

#include "base/status.h"
#include "sampling/sampling_params.h"

namespace gapless {

// The first field that is out of its range, with its value and the range. Token ids and lengths are not
// looked at: their range is the model's.
Status check_ranges(const SamplingParams& params);

}  // namespace gapless
