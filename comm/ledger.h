// What a rank has communicated: calls and payload bytes of every verb of every group.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "comm/call.h"

namespace isobar {

struct Traffic {
  std::int64_t calls = 0, bytes = 0;
  friend bool operator==(const Traffic&, const Traffic&) = default;
};

class CommLedger {
 public:
  void count(const std::string& group, const Call& call) {
    Traffic& traffic = groups_[group][static_cast<std::size_t>(call.verb)];
    ++traffic.calls;
    traffic.bytes += call.payload();
  }
  Traffic of(const std::string& group, Verb verb) const {
    const auto found = groups_.find(group);
    return found == groups_.end() ? Traffic{} : found->second[static_cast<std::size_t>(verb)];
  }
  void clear() { groups_.clear(); }

 private:
  std::map<std::string, std::array<Traffic, kVerbs>> groups_;
};

}  // namespace isobar
