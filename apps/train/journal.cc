#include "apps/train/journal.h"

#include <sys/resource.h>

#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "data/maps/png.h"
#include "kernels/common/check.h"
#include "kernels/common/printable.h"

namespace isobar {

using nlohmann::ordered_json;

namespace {

std::string padded(std::int64_t iteration) {
  std::ostringstream out;
  out << std::setw(8) << std::setfill('0') << iteration;
  return out.str();
}

// On a GPU the peak of tensor memory; on the CPU the peak of the whole process.
std::int64_t peak_memory(Device device) {
  if (device.kind == DeviceKind::cuda) return static_cast<std::int64_t>(peak_memory_bytes());
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace

void add_figures(ordered_json& object, const std::vector<Figure>& figures) {
  for (const Figure& figure : figures) {
    if (figure.part.empty())
      object[figure.name] = figure.value;
    else
      object[figure.name][figure.part] = figure.value;
  }
}

void Tally::add(const StepResult& result, double iteration_seconds) {
  ++iterations;
  seconds += iteration_seconds;
  data_seconds += result.data_seconds;
  loss += result.loss;
  missing += result.missing;
  uncounted += result.uncounted;
}

double Tally::samples_per_second(double batch) const {
  if (iterations == 0) return 0;
  return iterations_per_second() * (batch - static_cast<double>(missing) / static_cast<double>(iterations));
}

Journal::Journal(const RunFolder& folder, RunFacts facts, std::optional<std::int64_t> purge_step)
    : folder_(folder),
      facts_(std::move(facts)),
      lines_(make_log_lines(facts_.log_style)),
      board_(folder.logs(), purge_step) {}

void Journal::log(const Lines& lines) const {
  for (const std::string& line : lines) folder_.log(line);
}

void Journal::config(const ordered_json& config, std::int64_t step) {
  std::string table = "| key | value |\n|---|---|\n";
  for (const auto& [key, value] : config.items()) table += "| " + key + " | `" + value.dump() + "` |\n";
  board_.text("Config", table, step);
}

void Journal::train(std::int64_t iteration, std::int64_t epoch, const StepResult& result, const Tally& since_last) {
  ordered_json line{{"event", "train"},
                    {"iteration", iteration},
                    {"epoch", epoch},
                    {"loss", result.loss},
                    {"lr", result.lr},
                    {"samples_per_second", since_last.samples_per_second(facts_.samples_per_iteration)},
                    {"data_seconds", since_last.data_seconds}};
  if (result.applied) line["grad_norm"] = result.grad_norm;
  if (facts_.has_loss_scale) line["loss_scale"] = result.loss_scale;
  folder_.append_metrics(line);
  board_.scalar("Iteration/loss", result.loss, iteration);
  board_.scalar("Iteration/learning rate", result.lr, iteration);
  if (result.applied) board_.scalar("Iteration/gradient norm", result.grad_norm, iteration);
  if (facts_.has_loss_scale) board_.scalar("Iteration/loss scale", result.loss_scale, iteration);
}

void Journal::initial_loss(double loss) {
  board_.scalar("Loss/train", loss, 0);
}

void Journal::epoch_end(std::int64_t iteration, std::int64_t epoch, const Tally& tally, double next_lr) {
  const double rate = tally.iterations_per_second();
  const double samples_rate = tally.samples_per_second(facts_.samples_per_iteration);
  log(lines_->epoch_end({.epoch = epoch,
                         .seconds = tally.seconds,
                         .data_seconds = tally.data_seconds,
                         .samples_per_second = samples_rate,
                         .loss = tally.mean_loss()}));
  board_.scalar("Loss/train", tally.mean_loss(), iteration);
  board_.scalar("Learning Rate", next_lr, iteration);
  board_.scalar("Avg iters per sec", rate, iteration);
  board_.scalar("Avg samples per sec", samples_rate, iteration);
  board_.scalar("Seconds waited for data", tally.data_seconds, iteration);
}

Report ValidationMetrics::report() const {
  if (valid == nullptr) return {};
  Report report = valid->report(DataSplit::valid);
  if (also == nullptr) return report;
  const Report other = also->report(DataSplit::valid);
  const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  append(report.line, other.line);
  append(report.summary, other.summary);
  append(report.scalars, other.scalars);
  append(report.charts, other.charts);
  report.sentence += "; " + other.sentence;
  report.table += "\n" + other.table;
  return report;
}

void Journal::valid(std::int64_t iteration, std::int64_t epoch, const ValidationMetrics& metrics, double seconds) {
  const Report report = metrics.report();
  const double loss = metrics.valid->loss();
  ordered_json line{{"event", "valid"}, {"iteration", iteration}, {"epoch", epoch}, {"loss", loss}};
  add_figures(line, report.line);
  folder_.append_metrics(line);
  log(lines_->validated({.loss = loss, .seconds = seconds, .sentence = report.sentence}));
  board_.scalar("Loss/valid", loss, iteration);
  for (const auto& [tag, value] : report.scalars) board_.scalar(tag, value, iteration);
  if (!charts_are_written_ && !report.charts.empty()) board_.charts(report.charts);
  charts_are_written_ = true;
}

void Journal::pictures(std::int64_t iteration, const std::vector<Picture>& pictures) {
  for (const Picture& picture : pictures) {
    board_.image(picture.tag, picture.board, iteration);
    try {
      write_png(folder_.images() / (picture.file + "_" + padded(iteration) + ".png"), picture.image);
    } catch (const Error& error) {
      print_line(concat("warning: ", error.what(), "; the run goes on without this picture"));
    }
  }
}

void Journal::summary(const Result& result, const ValidationMetrics& metrics, const Task& task) {
  const Report report = metrics.report();
  const std::optional<Report> test =
      result.test == nullptr ? std::nullopt : std::optional(result.test->report(DataSplit::test));
  ordered_json summary{{"device", name_of(task.device().kind)},   {"precision", facts_.precision},
                       {"parameters", task.parameters().count()}, {"iterations", result.iterations},
                       {"train_loss", result.train_loss},         {"val_loss", nullptr}};
  if (metrics.valid != nullptr) summary["val_loss"] = metrics.valid->loss();
  add_figures(summary, report.summary);
  summary.update({{"samples_per_second", result.samples_per_second},
                  {"data_seconds", result.data_seconds},
                  {"peak_memory_bytes", result.largest_rank_bytes.value_or(peak_memory(task.device()))},
                  {"wall_seconds", result.wall_seconds}});
  for (const auto& [axis, ranks] : result.layout) summary["layout"][axis] = ranks;
  if (test) {
    summary[figure_of(DataSplit::test, "loss")] = result.test->loss();
    add_figures(summary, test->summary);
    if (result.test_iteration >= 0) summary[figure_of(DataSplit::test, "iteration")] = result.test_iteration;
  }
  folder_.write_summary(summary);
  if (metrics.valid != nullptr) folder_.log(report.table);
  if (!test) return;
  folder_.log(concat("test loss ", result.test->loss(),
                     result.test_is_of_best ? ", with the best weights" : ", with the last weights",
                     result.test_iteration < 0 ? "" : concat(", of iteration ", result.test_iteration)));
  folder_.log(test->table);
}

}  // namespace isobar
