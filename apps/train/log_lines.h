// The lines of a run's log that people and scripts know from another program (LogStyle): of the loop's beginning and
// end, of epochs and of validations.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/task.h"

namespace isobar {

// An epoch that has ended, or what there was of it.
struct EpochFigures {
  std::int64_t epoch = 0;  // from 1
  double seconds = 0;      // of training
  double data_seconds = 0;
  double samples_per_second = 0;
  double loss = 0;  // mean over its iterations
};

struct ValidationFigures {
  double loss = 0;
  double seconds = 0;
  std::string sentence;  // of the task
};

using Lines = std::vector<std::string>;

class LogLines {
 public:
  virtual ~LogLines() = default;

  virtual std::string ranks(std::int64_t ranks) const = 0;  // empty: none
  virtual std::string resumed(const std::string& checkpoint, std::int64_t iteration) const = 0;
  virtual std::string loop_begins() const = 0;
  virtual std::string run_ends() const = 0;
  virtual Lines epoch_end(const EpochFigures& figures) = 0;
  virtual Lines validated(const ValidationFigures& figures) = 0;
};

std::unique_ptr<LogLines> make_log_lines(LogStyle style);

}  // namespace isobar
