// For backends that communicate between hosts' memories: stages a call whose buffers are on a GPU.
#pragma once

#include <cstddef>
#include <vector>

#include "comm/call.h"
#include "engine/storage.h"

namespace isobar {

// Host copies of a GPU's buffers, for the time of one call.
class HostCopies {
 public:
  explicit HostCopies(const Call& call) : original_(call), copy_(call) {
    copy_.send = stage(send_, call.send, call.sent());
    // An equal address is not enough: in place, a part may begin where the whole does.
    const bool is_same = call.receive == call.send && call.received() == call.sent();
    copy_.receive = is_same ? send_.data() : stage(receive_, call.receive, call.received());
    copy_.device = {};
  }
  const Call& call() const { return copy_; }
  void bring_back() const {
    const std::size_t bytes = static_cast<std::size_t>(copy_.received()) * copy_.element_size();
    if (bytes > 0) copy_bytes(original_.receive, original_.device, copy_.receive, Device{}, bytes);
  }

 private:
  std::byte* stage(std::vector<std::byte>& to, const void* from, std::int64_t elements) const {
    to.resize(static_cast<std::size_t>(elements) * original_.element_size());
    if (!to.empty()) copy_bytes(to.data(), Device{}, from, original_.device, to.size());
    return to.data();
  }

  const Call& original_;
  Call copy_;
  std::vector<std::byte> send_, receive_;
};

}  // namespace isobar
