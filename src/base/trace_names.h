// The vocabulary of traces: the rings, and what is recorded in each. docs/tracing.md explains every name, and
// `gapless trace` reads them.
#pragma once

#include "base/trace.h"

namespace gapless::trace {

// Rings, in the order in which a viewer shows them.
inline constexpr const char* kHttp = "http";
inline constexpr const char* kScheduler = "scheduler";
inline constexpr const char* kForward = "forward";
inline constexpr const char* kDevice = "device";  // written by the scheduler, with the device's times
inline constexpr const char* kDetokenizer = "detokenizer";
inline constexpr const char* kRings[] = {kHttp, kScheduler, kForward, kDevice, kDetokenizer};

// http
inline constexpr TraceName kRequest{"request", {"bytes"}};  // from a request's last byte to its handler's end
inline constexpr TraceName kBurst{"burst", {"handlers"}};   // everything that was ready when the loop woke

// scheduler: what it does in an iteration, and what it waits for
inline constexpr TraceName kIdle{"idle"};             // nothing runs: waits for a request
inline constexpr TraceName kWait{"wait", {"batch"}};  // for the result of that batch, or a request
inline constexpr TraceName kWake{"wake", {"batch"}};  // last part of a wait: the device has ended already
inline constexpr TraceName kIngest{"ingest", {"requests"}};
inline constexpr TraceName kCompose{"compose", {"batch", "rows", "tokens"}};
inline constexpr TraceName kLaunch{"launch", {"batch", "rows", "tokens"}};
inline constexpr TraceName kRecall{"recall", {"batch"}};
inline constexpr TraceName kStall{"memory_stall",
                                  {"batch"}};  // memory for a batch has to wait for this result
inline constexpr TraceName kMask{"mask", {"batch", "rows"}};  // of the rows with a grammar, for the next step
inline constexpr TraceName kProcess{"process", {"batch", "rows"}};
inline constexpr TraceName kSend{"send", {"deltas"}};
inline constexpr TraceName kSnapshot{"snapshot", {"requests"}};  // what runs, for one who watches

// forward
inline constexpr TraceName kForwardWait{"wait"};  // for a launch
inline constexpr TraceName kPlan{"plan", {"batch", "rows", "tokens"}};

// device: steps by their mode
inline constexpr TraceName kDecode{"decode", {"batch", "rows", "tokens"}};
inline constexpr TraceName kExtend{"extend", {"batch", "rows", "tokens"}};
inline constexpr TraceName kMixed{"mixed", {"batch", "rows", "tokens"}};

// detokenizer
inline constexpr TraceName kDeliver{"deliver", {"deltas", "tokens"}};  // one message of the scheduler

}  // namespace gapless::trace
