#include "comm/fault.h"

#include <cstdlib>
#include <sstream>

#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr double kMaxSeconds = 1e6;  // a clock's 64-bit count of nanoseconds holds them

template <class T>
T number_in(const std::string& text, const std::string& all) {
  T number{};
  std::istringstream in(text);
  ISOBAR_CHECK(in >> number && in.eof() && number >= 0, "ISOBAR_FAULT=\"", all, "\": '", text, "' is not a number");
  return number;
}

Fault::Kind kind_of(const std::string& name, const std::string& all) {
  if (name == "die") return Fault::Kind::die;
  if (name == "throw") return Fault::Kind::fail;
  if (name == "hang") return Fault::Kind::hang;
  if (name == "slow") return Fault::Kind::slow;
  if (name == "garble") return Fault::Kind::wrong_count;
  if (name == "skew") return Fault::Kind::skew;
  throw_error("ISOBAR_FAULT=\"", all, "\": '", name, "' is not one of die, throw, hang, slow:SECONDS, garble, skew");
}

}  // namespace

Fault Fault::parse(const std::string& text) {
  Fault fault;
  bool has_rank = false, has_kind = false;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (key == "rank") {
      fault.rank = number_in<int>(value, text);
      has_rank = true;
    } else if (key == "call") {
      fault.call = number_in<std::int64_t>(value, text);
    } else if (key == "do") {
      const std::size_t colon = value.find(':');
      fault.kind = kind_of(value.substr(0, colon), text);
      if (colon != std::string::npos) fault.seconds = number_in<double>(value.substr(colon + 1), text);
      ISOBAR_CHECK(fault.seconds <= kMaxSeconds, "ISOBAR_FAULT=\"", text, "\": at most slow:", kMaxSeconds);
      has_kind = true;
    } else {
      throw_error("ISOBAR_FAULT=\"", text, "\": '", key, "' is not one of rank, call, do");
    }
  }
  ISOBAR_CHECK(has_rank && has_kind && fault.call >= 1, "ISOBAR_FAULT=\"", text,
               "\": rank=R, call=N (from 1) and do=WHAT are needed");
  return fault;
}

std::optional<Fault> Fault::from_environment() {
  const char* text = std::getenv("ISOBAR_FAULT");
  if (text == nullptr || *text == '\0') return std::nullopt;
  return parse(text);
}

}  // namespace isobar
