#include "scheduler/sim_testing/op_tap.h"

#include <string_view>
#include <vector>

#include "device/sim/sim_stream.h"

namespace gapless::sim_testing {
namespace {

// An op of the original list, and who watches it.
struct TappedOp {
  Op op;
  Fault* fault;
  HostEvent* early;  // set after the last op, if at all
};

// The parameters of take, masks and commit are these, or begin with them.
const TakeParams& take_params(const TappedOp& tapped) {
  return *static_cast<const TakeParams*>(tapped.op.params);
}

int32_t tapped_chunks(const TappedOp& tapped) {
  return tapped.op.chunks(tapped.op.params);
}

OpWork tapped_work(const TappedOp& tapped) {
  return tapped.op.work ? tapped.op.work(tapped.op.params) : OpWork{};
}

void run_tapped(const TappedOp& tapped, int32_t chunk, OpContext& context) {
  const std::string_view name = tapped.op.name;
  if (name == "take") tapped.fault->before_take(take_params(tapped));
  if (name == "masks") tapped.fault->before_masks(take_params(tapped));
  tapped.op.run(tapped.op.params, chunk, context);
  if (name == "take" && !take_params(tapped).launch->recalled())
    tapped.fault->after_take(take_params(tapped));
  if (name != "commit") return;
  tapped.fault->after_commit(take_params(tapped));
  if (tapped.early) tapped.early->set({}, {});
}

class TapStream : public Stream {
 public:
  TapStream(std::unique_ptr<Stream> stream, Device& device, Fault& fault)
      : stream_(std::move(stream)), device_(device), fault_(fault) {}

  std::shared_ptr<Event> submit(std::unique_ptr<OpList> ops) override {
    auto early = fault_.event_before_copies() ? std::make_shared<HostEvent>() : nullptr;
    const TakeParams* take = nullptr;
    std::unique_ptr<OpList> tapped = stream_->new_ops();
    for (const Op& op : ops->ops()) {
      if (op.name == kSimHostCopy) {
        const auto& copy = *static_cast<const SimCopy*>(op.params);
        device_.push_copy(*tapped, copy.to, copy.from, copy.bytes);
        continue;
      }
      if (std::string_view(op.name) == "take") take = static_cast<const TakeParams*>(op.params);
      tapped->push<tapped_chunks, run_tapped, tapped_work>(op.name, TappedOp{op, &fault_, early.get()});
    }
    originals_.push_back(std::move(ops));
    std::shared_ptr<Event> done = stream_->submit(std::move(tapped));
    if (take) fault_.on_submit(*take);
    if (!early) return done;
    done->on_set([early](const Status& status) {
      if (!early->ready()) early->set(status, {});
    });
    return early;
  }
  std::unique_ptr<OpList> new_ops() override { return std::make_unique<OpList>(); }
  void synchronize() override { stream_->synchronize(); }
  int workers() const override { return stream_->workers(); }

 private:
  std::unique_ptr<Stream> stream_;
  Device& device_;
  Fault& fault_;
  std::vector<std::unique_ptr<OpList>> originals_;  // the tapped ops point into them
};

}  // namespace

std::unique_ptr<Stream> OpTap::create_stream() {
  return std::make_unique<TapStream>(device_.create_stream(), device_, fault_);
}

}  // namespace gapless::sim_testing
