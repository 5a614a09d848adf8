// The communication of a rank, counted or predicted: calls and payload bytes of every verb of every group.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "comm/call.h"

namespace isobar {

struct Traffic {
  std::int64_t calls = 0, bytes = 0;  // bytes as Call::payload() counts them
  friend bool operator==(const Traffic&, const Traffic&) = default;
};

class CommLedger {
 public:
  void count(const std::string& group, const Call& call) { add(group, call.verb, 1, call.payload()); }
  void add(const std::string& group, Verb verb, std::int64_t calls, std::int64_t bytes);
  Traffic of(const std::string& group, Verb verb) const;
  Traffic total() const;  // of all groups and verbs
  void clear() { groups_.clear(); }

  // The difference: what was added since the copy `before` was made.
  CommLedger since(const CommLedger& before) const;
  CommLedger& operator+=(const CommLedger& other);

  // A verb without calls equals a verb without an entry.
  friend bool operator==(const CommLedger& a, const CommLedger& b) {
    return a.since(b).is_empty() && b.since(a).is_empty();
  }
  bool is_empty() const;

 private:
  friend std::string compare(const CommLedger& predicted, const CommLedger& counted);
  friend std::string to_text(const CommLedger& ledger);
  std::map<std::string, std::array<Traffic, kVerbs>> groups_;
};

// A table for people: calls and bytes of every verb of every group, predicted beside counted.
std::string compare(const CommLedger& predicted, const CommLedger& counted);
// The same of one ledger; empty if it has no calls.
std::string to_text(const CommLedger& ledger);

}  // namespace isobar
