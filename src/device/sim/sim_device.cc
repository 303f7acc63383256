#include "device/sim/sim_device.h"

#include <cstring>

namespace gapless {
namespace {

constexpr int kPoison = 0xff;

int32_t one_chunk(const SimCopy&) {
  return 1;
}
void run_copy(const SimCopy& copy, int32_t, OpContext&) {
  std::memcpy(copy.to, copy.from, copy.bytes);
}

}  // namespace

SimDevice::SimDevice(SimDeviceOptions options)
    : profile_(std::move(options.profile)), name_("sim:" + profile_.name) {
  shared_->machine = profile_.machine;
  shared_->faults = std::move(options.faults);
  shared_->stepped = options.stepped;
}

Result<Buffer> SimDevice::allocate(size_t bytes, MemoryKind kind) {
  ASSIGN_OR_RETURN(Buffer buffer, memory_.allocate(bytes, kind));
  const auto begin = reinterpret_cast<uintptr_t>(buffer.as<char>());
  std::lock_guard lock(mutex_);
  std::erase_if(host_results_,
                [&](const auto& range) { return range.first < begin + bytes && begin < range.second; });
  if (kind == MemoryKind::kHostResult) host_results_[begin] = begin + bytes;
  return buffer;
}

bool SimDevice::is_host_result(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  std::lock_guard lock(mutex_);
  const auto after = host_results_.upper_bound(address);
  return after != host_results_.begin() && address < std::prev(after)->second;
}

std::unique_ptr<Stream> SimDevice::create_stream() {
  return std::make_unique<SimStream>(shared_);
}

void SimDevice::push_copy(OpList& ops, void* to, const void* from, size_t bytes) {
  const char* const name = is_host_result(to) ? kSimHostCopy : "copy";
  ops.push<one_chunk, run_copy>(name, SimCopy{static_cast<char*>(to), static_cast<const char*>(from), bytes});
}

void SimDevice::poison(void* data, size_t bytes) {
  std::memset(data, kPoison, bytes);
}

bool SimDevice::advance() {
  std::vector<SimStream*> streams;
  {
    std::lock_guard lock(shared_->mutex);
    streams = shared_->streams;
  }
  for (SimStream* stream : streams)
    if (stream->advance()) return true;
  return false;
}

SimDevice::Stats SimDevice::stats() const {
  return {shared_->steps.load(), shared_->overruns.load(), double(shared_->own_work_ns.load()) * 1e-9};
}

}  // namespace gapless
