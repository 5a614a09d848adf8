// The steps that forecasts start from, as a user names them: by number, or by date.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/fields/calendar.h"
#include "data/fields/step_times.h"

namespace isobar {

class StartRequest {
 public:
  // "5", a step counted over the files in order, or "2018-12-20T00", a time in UTC; "2018-12-20" is its first hour.
  // Every Error begins with `flag`.
  static StartRequest one(const std::string& flag, const std::string& text);
  // Steps "A:B:S" as Python's range(A, B, S), S is optional. Or dates "FIRST:LAST:INTERVAL", both of them included, as
  // 2018-12-01T00:2018-12-20T00:12h: FIRST, and so on every INTERVAL (as 90min, 12h, 1d) up to LAST. LAST without an
  // hour means to the end of that day. INTERVAL is optional: every step of the data.
  static StartRequest range(const std::string& flag, const std::string& text);

  bool are_dates() const { return dates_.has_value(); }
  // The steps, in their order; at least one. Error for a date that is not the time of a step: it names the channels
  // that the data do not have at that time. Steps given by number may not be in the data.
  std::vector<std::int64_t> steps(const FieldSeries& series, const StepTimes& times) const;

 private:
  struct Steps {
    std::int64_t first = 0, step = 1, count = 1;
  };
  struct Dates {
    double first = 0, last = 0;      // hours since 1970-01-01T00, both included
    std::optional<double> interval;  // hours
  };

  std::string what_;  // "--starts 0:4:2"
  Steps steps_;
  std::optional<Dates> dates_;
};

}  // namespace isobar
