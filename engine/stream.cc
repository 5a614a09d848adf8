#include "engine/stream.h"

#include <exception>
#include <utility>

namespace isobar {

Pending::Pending(std::unique_ptr<gpu::Event> done, SharedStream waiting)
    : done_(std::move(done)), waiting_(std::move(waiting)) {}

Pending::~Pending() noexcept(false) {
  try {
    wait();
  } catch (...) {
    if (std::uncaught_exceptions() == 0) throw;  // otherwise the first error is the one to report
  }
}

void Pending::wait() {
  const std::unique_ptr<gpu::Event> done = std::move(done_);
  if (done != nullptr) done->make_wait(waiting_ == nullptr ? nullptr : waiting_->get());
}

SideStream::SideStream(Device device)
    : stream_(device.kind == DeviceKind::cpu || !holds_values(device)
                  ? nullptr
                  : std::make_shared<gpu::OwnedStream>(device, gpu::Priority::highest)) {}

void SideStream::fork() const {
  if (stream_ == nullptr) return;
  gpu::Event start(stream_->device());
  start.record(current_stream());
  start.make_wait(stream_->get());
}

Pending SideStream::join() const {
  if (stream_ == nullptr) return {};
  auto done = std::make_unique<gpu::Event>(stream_->device());
  done->record(stream_->get());
  return {std::move(done), share_current_stream()};
}

}  // namespace isobar
