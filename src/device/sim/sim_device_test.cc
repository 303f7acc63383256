// The simulated accelerator beyond what every device does: its clock, its poison, its faults and its stepped
// mode. No test depends on how fast this machine is.
#include "device/sim/sim_device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace gapless {
namespace {

using namespace std::chrono_literals;

struct WorkParams {
  OpWork work{};
  std::chrono::microseconds own{0};
  std::vector<int>* log = nullptr;
  int number = 0;
  bool ends_step = false;
};
int32_t one_chunk(const WorkParams&) {
  return 1;
}
OpWork work_of(const WorkParams& p) {
  return p.work;
}
void run_work(const WorkParams& p, int32_t, OpContext& context) {
  if (p.log) p.log->push_back(p.number);
  if (p.own > 0us) std::this_thread::sleep_for(p.own);
  if (p.ends_step) context.end_step();
}

constexpr SimMachine kMachine{
    .bytes_per_second = 1e9, .flops_per_second = 1e12, .launch_latency = 0.25, .step_overhead = 0.125};

SimProfile profile_of(const SimMachine& machine) {
  return {"test", machine, {}};
}
SimDevice stepped_device(std::shared_ptr<SimFaults> faults = nullptr) {
  return SimDevice({.profile = profile_of(kMachine), .stepped = true, .faults = std::move(faults)});
}

std::unique_ptr<OpList> list_of(Stream& stream, std::vector<WorkParams> params) {
  auto ops = stream.new_ops();
  for (const WorkParams& p : params) ops->push<one_chunk, run_work, work_of>("work", p);
  return ops;
}
std::shared_ptr<Event> submit(Stream& stream, std::vector<WorkParams> params) {
  return stream.submit(list_of(stream, std::move(params)));
}
void drain(SimDevice& device) {
  while (device.advance()) {
  }
}

// --- clock ---

TEST(SimClock, AStepCostsItsRoofline) {
  const SimClock clock(kMachine);
  EXPECT_DOUBLE_EQ(clock.cost({2e9, 1e12}), 2.125);
  EXPECT_DOUBLE_EQ(clock.cost({1e9, 3e12}), 3.125);
  EXPECT_DOUBLE_EQ(clock.cost({}), 0.125);
  EXPECT_EQ(SimClock(SimMachine{}).cost({1e18, 1e18}), 0);
}

TEST(SimClock, StepsFollowEachOtherOrTheLaunch) {
  SimClock clock(kMachine);
  EXPECT_DOUBLE_EQ(clock.start(10), 10.25);
  EXPECT_DOUBLE_EQ(clock.end(10.25, 2, 10.5), 12.25);
  EXPECT_DOUBLE_EQ(clock.start(11), 12.25);       // launched in time: no gap
  EXPECT_DOUBLE_EQ(clock.end(12.25, 2, 99), 99);  // the own work was late
  EXPECT_DOUBLE_EQ(clock.start(98.5), 99);
  EXPECT_DOUBLE_EQ(clock.start(100), 100.25);  // launched late: the device was idle
}

TEST(SimStream, EventsTellTheSimulatedTimes) {
  SimDevice device = stepped_device();
  const auto stream = device.create_stream();
  const auto a = submit(*stream, {{.work = {1e9, 0}}, {.work = {0.5e9, 1e12}}});
  const auto b = submit(*stream, {{.work = {0, 2e12}}});
  drain(device);
  const StepTimes first = a->times(), second = b->times();
  EXPECT_DOUBLE_EQ(first.started, first.submitted + 0.25);
  EXPECT_DOUBLE_EQ(first.ended, first.started + 1.5 + 0.125);
  EXPECT_DOUBLE_EQ(second.started, std::max(first.ended, second.submitted + 0.25));
  EXPECT_DOUBLE_EQ(second.ended, second.started + 2 + 0.125);
  const auto c = submit(*stream, {{.work = {1e9, 0}}});
  drain(device);
  EXPECT_DOUBLE_EQ(c->times().started, std::max(second.ended, c->times().submitted + 0.25));
  EXPECT_EQ(device.stats().steps, 3);
  EXPECT_EQ(device.stats().overruns, 0);
}

TEST(SimStream, ARecalledStepTakesNoTimeOfTheMachine) {
  SimDevice device = stepped_device();
  const auto stream = device.create_stream();
  const auto a = submit(*stream, {{.work = {1e9, 0}}});
  const auto recalled = submit(*stream, {{.ends_step = true}, {.work = {5e9, 0}}});
  const auto b = submit(*stream, {{.work = {1e9, 0}}});
  drain(device);
  EXPECT_TRUE(recalled->wait().is_ok());
  EXPECT_EQ(recalled->times().started, recalled->times().ended);
  EXPECT_DOUBLE_EQ(b->times().started, std::max(a->times().ended, b->times().submitted + 0.25));
  EXPECT_EQ(device.stats().steps, 2);
}

TEST(SimStream, EventsComeNoEarlierThanTheSimulatedEnd) {
  SimMachine machine;
  machine.launch_latency = 0.002;
  machine.bytes_per_second = 1e9;
  SimDevice device({.profile = profile_of(machine)});
  const auto stream = device.create_stream();
  std::vector<std::shared_ptr<Event>> events;
  for (int i = 0; i < 5; ++i) events.push_back(submit(*stream, {{.work = {3e6, 0}}}));
  double end = 0;
  for (const auto& event : events) {
    ASSERT_TRUE(event->wait().is_ok());
    const StepTimes times = event->times();
    EXPECT_GE(steady_seconds(), times.ended);
    EXPECT_DOUBLE_EQ(times.started, std::max(end, times.submitted + 0.002));
    EXPECT_GE(times.ended, times.started + 0.003);
    end = times.ended;
  }
}

TEST(SimStream, OwnWorkThatOutlastsTheCostIsCounted) {
  SimMachine machine;
  machine.step_overhead = 1e-4;
  SimDevice device({.profile = profile_of(machine)});
  const auto stream = device.create_stream();
  const auto late = submit(*stream, {{.own = 5ms}});
  ASSERT_TRUE(late->wait().is_ok());
  EXPECT_GE(late->times().ended - late->times().started, 0.005);
  EXPECT_EQ(device.stats().overruns, 1);
  EXPECT_GE(device.stats().own_work_seconds, 0);
}

// --- stepped mode ---

TEST(SimStream, AdvanceDoesOnePartOfTheOldestStep) {
  SimDevice device = stepped_device();
  const auto stream = device.create_stream();
  std::vector<int> log;
  const auto work = [&](int number) { return WorkParams{.log = &log, .number = number}; };
  const auto a = submit(*stream, {work(1), work(2), work(3)});
  const auto b = submit(*stream, {work(4)});
  const std::vector<std::vector<int>> after{{1},          {1, 2, 3},    {1, 2, 3},
                                            {1, 2, 3, 4}, {1, 2, 3, 4}, {1, 2, 3, 4}};
  for (size_t part = 0; part < after.size(); ++part) {
    EXPECT_TRUE(device.advance());
    EXPECT_EQ(log, after[part]);
    EXPECT_EQ(a->ready(), part >= 2);
    EXPECT_EQ(b->ready(), part >= 5);
  }
  EXPECT_FALSE(device.advance());
}

TEST(SimStream, SteppedStreamsAreDrained) {
  SimDevice device = stepped_device();
  auto first = device.create_stream(), second = device.create_stream();
  std::vector<int> log;
  const auto a = submit(*first, {{.log = &log, .number = 1}});
  first->synchronize();
  EXPECT_TRUE(a->ready());
  const auto b = submit(*first, {{.log = &log, .number = 2}});
  const auto c = submit(*second, {{.log = &log, .number = 3}});
  first.reset();
  EXPECT_TRUE(b->ready());
  EXPECT_FALSE(c->ready());
  drain(device);  // knows nothing of the stream that is gone
  EXPECT_EQ(log, (std::vector<int>{1, 2, 3}));
}

// --- poison ---

TEST(SimDevice, ResultsAreNonsenseUntilTheEvent) {
  SimDevice device = stepped_device();
  const auto stream = device.create_stream();
  const Buffer memory = device.allocate(64, MemoryKind::kDevice).value();
  const Buffer host = device.allocate(128, MemoryKind::kHostResult).value();
  int32_t* const result = host.as<int32_t>() + 8;  // inside the buffer
  *memory.as<int32_t>() = 42;
  *result = 7;
  host.as<int32_t>()[9] = 7;
  auto ops = list_of(*stream, {{}});
  device.push_copy(*ops, result, memory.as<char>(), 4);
  const auto event = stream->submit(std::move(ops));
  EXPECT_EQ(*result, -1);
  EXPECT_EQ(host.as<int32_t>()[9], 7);  // only what the step will write
  device.advance(), device.advance();
  EXPECT_EQ(*result, -1);
  device.advance();
  EXPECT_TRUE(event->ready());
  EXPECT_EQ(*result, 42);
}

TEST(SimDevice, ARecalledOrFailedStepCopiesNothing) {
  for (const bool fails : {false, true}) {
    class Failing : public SimFaults {
      Status failure(uint64_t) override { return Status::internal("planned"); }
    };
    SimDevice device = stepped_device(fails ? std::make_shared<Failing>() : nullptr);
    const auto stream = device.create_stream();
    const Buffer memory = device.allocate(64, MemoryKind::kDevice).value();
    const Buffer host = device.allocate(64, MemoryKind::kHostResult).value();
    auto ops = list_of(*stream, {{.ends_step = !fails}});
    device.push_copy(*ops, host.as<char>(), memory.as<char>(), 4);
    const auto event = stream->submit(std::move(ops));
    drain(device);
    EXPECT_EQ(event->wait().is_ok(), !fails);
    EXPECT_EQ(*host.as<int32_t>(), -1);
  }
}

TEST(SimDevice, PoisonFillsTheRange) {
  SimDevice device = stepped_device();
  ASSERT_TRUE(device.poisons());
  const Buffer memory = device.allocate(64, MemoryKind::kDevice).value();
  device.poison(memory.as<char>() + 4, 8);
  EXPECT_EQ(memory.as<int32_t>()[0], 0);
  EXPECT_EQ(memory.as<int32_t>()[1], -1);
  EXPECT_EQ(memory.as<int32_t>()[2], -1);
  EXPECT_EQ(memory.as<int32_t>()[3], 0);
}

// Addresses that were result memory and are handed out again as device memory: a copy there is not deferred.
TEST(SimDevice, FreedResultBuffersAreForgotten) {
  SimDevice device = stepped_device();
  const auto stream = device.create_stream();
  void* former = device.allocate(4096, MemoryKind::kHostResult).value().as<char>();
  const Buffer again = device.allocate(4096, MemoryKind::kDevice).value();
  if (again.as<char>() != former) GTEST_SKIP() << "the address was not used again";
  int32_t source = 5;
  auto ops = list_of(*stream, {{}});
  device.push_copy(*ops, again.as<char>(), &source, 4);
  (void)stream->submit(std::move(ops));
  device.advance(), device.advance();
  EXPECT_EQ(*again.as<int32_t>(), 5);
}

// --- faults ---

class Recorder : public SimFaults {
 public:
  void at(SimPoint point, uint64_t step) override { log.push_back(int(step) * 10 + int(point)); }
  Status failure(uint64_t step) override { return step == 1 ? Status::internal("planned") : Status(); }
  std::vector<int> log;
};

TEST(SimFaults, AreAskedAtEveryPointAndFailOneStep) {
  const auto faults = std::make_shared<Recorder>();
  SimDevice device = stepped_device(faults);
  const auto stream = device.create_stream();
  std::vector<int> log;
  std::vector<std::shared_ptr<Event>> events;
  for (int step = 0; step < 3; ++step)
    events.push_back(submit(*stream, {{.log = &log, .number = step}, {.log = &log, .number = 100 + step}}));
  drain(device);
  EXPECT_EQ(faults->log, (std::vector<int>{0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23}));
  EXPECT_TRUE(events[0]->wait().is_ok());
  EXPECT_EQ(events[1]->wait().message(), "planned");
  EXPECT_TRUE(events[2]->wait().is_ok());
  EXPECT_EQ(log, (std::vector<int>{0, 100, 1, 2, 102}));  // its first op ran: the launch was taken
}

TEST(SimFaults, RandomOnesFollowTheirSeed) {
  const auto failed_steps = [](uint64_t seed) {
    SimDevice device = stepped_device(std::make_shared<RandomSimFaults>(RandomSimFaults::Options{
        .seed = seed, .delay_probability = 0.5, .max_delay = 1us, .fail_probability = 0.3}));
    const auto stream = device.create_stream();
    std::vector<std::shared_ptr<Event>> events;
    for (int step = 0; step < 64; ++step) events.push_back(submit(*stream, {{}}));
    drain(device);
    std::vector<int> failed;
    for (int step = 0; step < 64; ++step)
      if (!events[size_t(step)]->wait().is_ok()) failed.push_back(step);
    return failed;
  };
  EXPECT_FALSE(failed_steps(1).empty());
  EXPECT_LT(failed_steps(1).size(), 64u);
  EXPECT_EQ(failed_steps(1), failed_steps(1));
  EXPECT_NE(failed_steps(1), failed_steps(2));
}

// --- profiles ---

TEST(SimProfile, AreFoundByName) {
  for (const std::string& name : sim_profile_names()) {
    const SimProfile profile = find_sim_profile(name).value();
    EXPECT_EQ(profile.name, name);
    EXPECT_GE(profile.model.vocab_size, kSimMinVocab);
    EXPECT_LE(profile.model.vocab_size, kSimMaxVocab);
  }
  EXPECT_EQ(find_sim_profile("").value().name, "zero");
  const Status status = find_sim_profile("h200").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  for (const std::string& name : sim_profile_names())
    EXPECT_NE(status.message().find(name), std::string::npos) << status.message();
}

// The step times that the profiles stand for, worked out by hand.
TEST(SimProfile, StepTimes) {
  struct Case {
    const char* name;
    double rows, context, seconds;
  };
  for (const Case& c :
       {Case{"b200-llama3.2-1b", 256, 1024, 1.405e-3}, Case{"b200-llama3.2-1b", 1, 1, 0.331e-3},
        Case{"h100-llama3.2-1b", 256, 1024, 3.325e-3}, Case{"h100-llama3-8b", 1, 1, 4.525e-3},
        Case{"h100-llama3-8b", 256, 1024, 14.78e-3}, Case{"cpu-smollm2", 1, 192, 3.56e-3},
        Case{"cpu-smollm2", 32, 192, 38.6e-3}}) {
    const SimProfile p = find_sim_profile(c.name).value();
    const double bytes =
        double(p.model.weight_bytes) + c.rows * c.context * double(p.model.kv_bytes_per_token);
    const double seconds = SimClock(p.machine).cost({bytes, 2 * double(p.model.matmul_params) * c.rows});
    EXPECT_NEAR(seconds, c.seconds, 0.01 * c.seconds) << c.name << ", " << c.rows << " rows";
  }
}

TEST(SimProfile, TheDeviceIsMadeByName) {
  EXPECT_EQ(SimDevice({.profile = find_sim_profile("zero").value()}).name(), "sim:zero");
}

}  // namespace
}  // namespace gapless
