#include "apps/sweep/sweep_results.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <sstream>

#include "engine/files/atomic_file.h"
#include "engine/files/json.h"
#include "engine/files/reader.h"
#include "kernels/common/check.h"
#include "kernels/common/printable.h"

namespace isobar {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

constexpr const char* kAbsent = "-";

// Null where there is no such file, or one that is not whole.
ordered_json read_or_null(const fs::path& file) {
  try {
    return fs::exists(file) ? read_json<ordered_json>(file) : nullptr;
  } catch (const Error&) {
    return nullptr;
  }
}

// A number of an object; none if there is no such key, or another value.
template <class T>
std::optional<T> number_at(const ordered_json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (!object.is_object() || found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<T>();
}

std::string shortened(double value) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.6g", value);
  return digits;
}

std::string shortened(const ordered_json& value) {
  if (value.is_number_float()) return shortened(value.get<double>());
  return value.is_string() ? printable(value.get<std::string>()) : shown(value);
}

std::string shortened(const std::optional<double>& value) {
  return value ? shortened(*value) : kAbsent;
}

std::string seconds_of(const RunResult& result) {
  if (!result.seconds) return kAbsent;
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.1f", *result.seconds);
  return digits;
}

using Row = std::vector<std::string>;

std::vector<std::string> keys_of(const std::vector<RunResult>& results) {
  std::vector<std::string> keys;
  if (!results.empty())
    for (const auto& [key, value] : results.front().values.items()) keys.push_back(key);
  return keys;
}

Row names_of_columns(const std::vector<RunResult>& results) {
  Row names{"run"};
  for (const std::string& key : keys_of(results)) names.push_back(key);
  for (const char* name : {"state", "iterations", "val_loss", "best_val_loss", "seconds", "error"})
    names.emplace_back(name);
  return names;
}

// The number of a run is enough to find it.
Row row_of(const RunResult& result) {
  Row row{result.name.substr(0, result.name.find('_'))};
  for (const auto& [key, value] : result.values.items()) row.push_back(shortened(value));
  row.emplace_back(name_of(result.state));
  row.push_back(result.iterations ? std::to_string(*result.iterations) : kAbsent);
  row.push_back(shortened(result.val_loss));
  row.push_back(shortened(result.best_val_loss));
  row.push_back(seconds_of(result));
  row.push_back(printable(result.error));
  return row;
}

std::string aligned(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const Row& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

const RunResult* best_of(const std::vector<RunResult>& results) {
  const RunResult* best = nullptr;
  for (const RunResult& result : results)
    if (result.best_val_loss && (best == nullptr || *result.best_val_loss < *best->best_val_loss)) best = &result;
  return best;
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

// Nothing for null, a string as it is, else JSON.
std::string csv_text(const ordered_json& value) {
  if (value.is_null()) return "";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

template <class T>
ordered_json or_null(const std::optional<T>& value) {
  return value ? ordered_json(*value) : ordered_json();
}

ordered_json to_json(const RunResult& result) {
  ordered_json object{{"run", result.name},
                      {"values", result.values},
                      {"state", name_of(result.state)},
                      {"iterations", or_null(result.iterations)},
                      {"val_loss", or_null(result.val_loss)},
                      {"best_val_loss", or_null(result.best_val_loss)},
                      {"seconds", or_null(result.seconds)}};
  object["error"] = result.error.empty() ? ordered_json() : ordered_json(result.error);
  return object;
}

}  // namespace

const char* name_of(RunState state) {
  constexpr std::array kNames{"pending", "running", "finished", "stopped", "failed"};
  return kNames[static_cast<std::size_t>(state)];
}

bool is_finished(const fs::path& run_folder) {
  const auto made = number_at<std::int64_t>(read_or_null(run_folder / "summary.json"), "iterations");
  return made && made == number_at<std::int64_t>(read_or_null(run_folder / "config.json"), "num_iters");
}

void read_figures(const fs::path& run_folder, RunResult& result) {
  result.iterations.reset();
  result.val_loss.reset();
  result.best_val_loss.reset();
  const fs::path metrics = run_folder / "metrics.jsonl";
  std::istringstream lines(fs::exists(metrics) ? read_file(metrics) : "");
  for (std::string line; std::getline(lines, line);) {
    const auto parsed = parse_json_if_valid<ordered_json>(line, metrics.string());
    if (!parsed || !parsed->is_object() || parsed->value("event", ordered_json()) != "valid") continue;
    result.iterations = number_at<std::int64_t>(*parsed, "iteration");
    result.val_loss = number_at<double>(*parsed, "loss");  // NaN is null in JSON
    if (result.val_loss && (!result.best_val_loss || *result.val_loss < *result.best_val_loss))
      result.best_val_loss = result.val_loss;
  }
  if (is_finished(run_folder))
    result.seconds = number_at<double>(read_or_null(run_folder / "summary.json"), "wall_seconds");
}

std::string to_table(const std::vector<RunResult>& results) {
  std::vector<Row> rows{names_of_columns(results)};
  for (const RunResult& result : results) rows.push_back(row_of(result));
  std::string text = aligned(rows);
  if (const RunResult* best = best_of(results))
    text += concat("smallest validation loss: ", shortened(*best->best_val_loss), ", of ", best->name, "\n");
  return text;
}

std::string to_csv(const std::vector<RunResult>& results) {
  std::string text;
  const auto add_line = [&](const Row& fields) {
    for (std::size_t i = 0; i < fields.size(); ++i) text += (i == 0 ? "" : ",") + csv_field(fields[i]);
    text += "\r\n";
  };
  add_line(names_of_columns(results));
  for (const RunResult& result : results) {
    const ordered_json object = to_json(result);
    Row fields;
    for (const auto& [name, value] : object.items()) {
      if (name != "values") {
        fields.push_back(csv_text(value));
        continue;
      }
      for (const auto& [key, chosen] : value.items()) fields.push_back(csv_text(chosen));
    }
    add_line(fields);
  }
  return text;
}

ordered_json to_json(const std::vector<RunResult>& results) {
  ordered_json runs = ordered_json::array();
  for (const RunResult& result : results) runs.push_back(to_json(result));
  return {{"runs", runs}};
}

void write_results(const fs::path& folder, const std::vector<RunResult>& results) {
  write_file_atomically(folder / "results.csv", to_csv(results));
  write_file_atomically(folder / "results.json", to_json(results).dump(2) + "\n");
}

}  // namespace isobar
