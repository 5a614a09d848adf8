#include "apps/train/log_lines.h"

#include <iomanip>
#include <optional>
#include <sstream>
#include <utility>

#include "kernels/common/check.h"

namespace isobar {
namespace {

class WeatherLines : public LogLines {
 public:
  std::string ranks(std::int64_t) const override { return ""; }
  std::string resumed(const std::string& checkpoint, std::int64_t iteration) const override {
    return concat("resumed from ", checkpoint, ", after iteration ", iteration);
  }
  std::string loop_begins() const override { return "Starting Training Loop..."; }
  std::string run_ends() const override { return "DONE ---- rank 0"; }
  Lines epoch_end(const EpochFigures& f) override {
    std::ostringstream time, loss;
    time << std::fixed << "Time taken for epoch " << f.epoch << " is " << f.seconds << " sec, avg "
         << f.samples_per_second << " samples/sec";
    loss << std::fixed << "  Avg train loss=" << f.loss;
    return {time.str(), loss.str(), concat("  Waited for data: ", f.data_seconds, " sec")};
  }
  Lines validated(const ValidationFigures& f) override {
    return {concat("  Avg val loss=", f.loss), "  " + f.sentence,
            concat("  Total validation time: ", f.seconds, " sec")};
  }
};

// An epoch is told together with the validation at its end.
class CourseLines : public LogLines {
 public:
  std::string ranks(std::int64_t ranks) const override { return concat("running on rank 0 with world size ", ranks); }
  std::string resumed(const std::string& checkpoint, std::int64_t) const override {
    return "Loading checkpoint " + checkpoint;
  }
  std::string loop_begins() const override { return "Starting training loop..."; }
  std::string run_ends() const override { return "Training complete"; }
  Lines epoch_end(const EpochFigures& f) override {
    const Lines before = ended_ ? of_epoch(*ended_, std::nullopt) : Lines();
    ended_ = f;
    return before;
  }
  Lines validated(const ValidationFigures& f) override {
    const std::optional<EpochFigures> ended = std::exchange(ended_, std::nullopt);
    Lines lines = ended ? of_epoch(*ended, f) : Lines{concat("Val loss = ", f.loss)};
    lines.push_back(f.sentence);
    return lines;
  }

 private:
  static Lines of_epoch(const EpochFigures& f, const std::optional<ValidationFigures>& valid) {
    const double validating = valid ? valid->seconds : 0;
    return {concat("Time taken for epoch ", f.epoch, " is ", f.seconds + validating, " sec; with ", f.seconds, "/",
                   validating, " in tr/val"),
            concat("Loss = ", f.loss, valid ? concat(", Val loss = ", valid->loss) : "")};
  }

  std::optional<EpochFigures> ended_;  // without a validation so far
};

}  // namespace

std::unique_ptr<LogLines> make_log_lines(LogStyle style) {
  if (style == LogStyle::course) return std::make_unique<CourseLines>();
  return std::make_unique<WeatherLines>();
}

}  // namespace isobar
