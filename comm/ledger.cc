#include "comm/ledger.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

namespace isobar {

namespace {
constexpr int kNameWidth = 10;
}

void CommLedger::add(const std::string& group, Verb verb, std::int64_t calls, std::int64_t bytes) {
  Traffic& traffic = groups_[group][static_cast<std::size_t>(verb)];
  traffic.calls += calls;
  traffic.bytes += bytes;
}

Traffic CommLedger::of(const std::string& group, Verb verb) const {
  const auto found = groups_.find(group);
  return found == groups_.end() ? Traffic{} : found->second[static_cast<std::size_t>(verb)];
}

Traffic CommLedger::total() const {
  Traffic total;
  for (const auto& [group, verbs] : groups_)
    for (const Traffic& traffic : verbs) {
      total.calls += traffic.calls;
      total.bytes += traffic.bytes;
    }
  return total;
}

CommLedger CommLedger::since(const CommLedger& before) const {
  CommLedger difference = *this;
  for (const auto& [group, verbs] : before.groups_)
    for (std::size_t v = 0; v < kVerbs; ++v)
      difference.add(group, static_cast<Verb>(v), -verbs[v].calls, -verbs[v].bytes);
  return difference;
}

CommLedger& CommLedger::operator+=(const CommLedger& other) {
  for (const auto& [group, verbs] : other.groups_)
    for (std::size_t v = 0; v < kVerbs; ++v) add(group, static_cast<Verb>(v), verbs[v].calls, verbs[v].bytes);
  return *this;
}

bool CommLedger::is_empty() const {
  return std::ranges::all_of(groups_, [](const auto& group) {
    return std::ranges::all_of(group.second, [](const Traffic& traffic) { return traffic == Traffic{}; });
  });
}

std::string compare(const CommLedger& predicted, const CommLedger& counted) {
  CommLedger all = predicted;
  all += counted;
  std::ostringstream out;
  const auto cells = [&](const auto& calls, const auto& bytes) {
    out << std::right << std::setw(10) << calls << std::setw(18) << bytes;
  };
  out << std::left << std::setw(kNameWidth) << "group" << std::setw(16) << "verb";
  cells("calls", "bytes predicted");
  cells("calls", "bytes counted");
  out << '\n';
  for (const auto& [group, verbs] : all.groups_) {
    for (std::size_t v = 0; v < kVerbs; ++v) {
      if (verbs[v] == Traffic{}) continue;
      const auto verb = static_cast<Verb>(v);
      const Traffic p = predicted.of(group, verb), c = counted.of(group, verb);
      out << std::left << std::setw(kNameWidth) << group << std::setw(16) << name_of(verb);
      cells(p.calls, p.bytes);
      cells(c.calls, c.bytes);
      out << (p == c ? "" : "   differs") << '\n';
    }
  }
  return out.str();
}

std::string to_text(const CommLedger& ledger) {
  if (ledger.is_empty()) return "";
  std::ostringstream out;
  out << std::left << std::setw(kNameWidth) << "group" << std::setw(16) << "verb" << std::right << std::setw(10)
      << "calls" << std::setw(18) << "bytes" << '\n';
  for (const auto& [group, verbs] : ledger.groups_)
    for (std::size_t v = 0; v < kVerbs; ++v)
      if (!(verbs[v] == Traffic{}))
        out << std::left << std::setw(kNameWidth) << group << std::setw(16) << name_of(static_cast<Verb>(v))
            << std::right << std::setw(10) << verbs[v].calls << std::setw(18) << verbs[v].bytes << '\n';
  return out.str();
}

}  // namespace isobar
