#include "apps/train/megatron_lines.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <string_view>

#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr std::size_t kDottedColumns = 48;
constexpr double kMega = 1024.0 * 1024.0;

template <class... Values>
std::string formatted(const char* format, Values... values) {
  std::array<char, 256> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, values...);
  return buffer.data();
}

// Two digits of an exponent at least, as C and Python have.
std::string scientific(double value, int digits) {
  return formatted("%.*E", digits, value);
}

long long whole(std::int64_t value) {
  return static_cast<long long>(value);
}

// The name, and dots up to a column.
std::string dotted(const std::string& name) {
  return name + " " + std::string(name.size() < kDottedColumns ? kDottedColumns - name.size() : 0, '.');
}

std::string without_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

}  // namespace

// The shortest digits that are read as the same number, as Python's repr has them.
std::string python_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 32> buffer{};
  const auto [end, error] =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific);
  ISOBAR_CHECK(error == std::errc(), "a number cannot be printed");
  const std::string text(buffer.data(), end);
  const std::size_t letter = text.find('e');
  const int exponent = std::stoi(text.substr(letter + 1));
  if (exponent < -4 || exponent >= 16) return text;
  std::array<char, 64> fixed{};
  const auto plain = std::to_chars(fixed.data(), fixed.data() + fixed.size(), value, std::chars_format::fixed);
  const std::string digits(fixed.data(), plain.ptr);
  return digits.find('.') == std::string::npos ? digits + ".0" : digits;
}

std::string megatron_training_line(const MegatronTraining& t, MegatronFormat format, const std::string& now) {
  const bool is_core = format == MegatronFormat::core;
  std::string line = is_core ? " [" + now + "]" : "";
  line += formatted(" iteration %8lld/%8lld |", whole(t.iteration), whole(t.iterations));
  line += formatted(" consumed samples: %12lld |", whole(t.consumed_samples));
  line += formatted(" elapsed time per iteration (ms): %.1f |", t.seconds_per_iteration * 1000);
  if (t.tflops) line += formatted(" throughput per GPU (TFLOP/s/GPU): %.1f |", *t.tflops);
  line += " learning rate: " + scientific(t.lr, is_core ? 6 : 3) + " |";
  line += formatted(" global batch size: %5lld |", whole(t.global_batch_size));
  if (t.loss > 0) line += " lm loss: " + scientific(t.loss, 6) + " |";
  line += formatted(" loss scale: %.1f |", t.loss_scale);
  if (t.grad_norm) line += formatted(" grad norm: %.3f |", *t.grad_norm);
  if (t.zeros) line += formatted(" num zeros: %.1f |", *t.zeros);
  if (t.params_norm) line += formatted(" params norm: %.3f |", *t.params_norm);
  line += formatted(" number of skipped iterations: %3lld |", whole(t.skipped));
  line += formatted(" number of nan iterations: %3lld |", whole(t.nan));
  return line;
}

std::string megatron_evaluation(MegatronFormat format, std::int64_t iteration, const char* set) {
  const bool is_test = std::string_view(set) == "test";
  if (format == MegatronFormat::core)
    return concat("iteration ", iteration, " on ", is_test ? "test" : "validation", " set");
  return concat("the end of training for ", is_test ? "test" : "val", " data");
}

double megatron_perplexity(double loss) {
  constexpr double kMostExponent = 20;
  return std::exp(std::min(kMostExponent, loss));
}

Lines megatron_validation_lines(const std::string& which, double loss) {
  const std::string line = concat(" validation loss at ", which, " | lm loss value: ", scientific(loss, 6),
                                  " | lm loss PPL: ", scientific(megatron_perplexity(loss), 6), " | ");
  const std::string dashes(line.size() + 1, '-');
  return {dashes, line, dashes};
}

std::string megatron_datetime_line(const std::string& what, const std::string& now) {
  return concat("[", what, "] datetime: ", now, " ");
}

std::string megatron_now() {
  const std::time_t seconds = std::time(nullptr);
  std::tm local = {};
  localtime_r(&seconds, &local);
  std::array<char, 32> buffer{};
  std::strftime(buffer.data(), buffer.size(), "%Y-%m-%d %H:%M:%S", &local);
  return buffer.data();
}

std::string megatron_world_line(const MegatronLayout& l, MegatronFormat format) {
  if (format == MegatronFormat::core)
    return concat("using world size: ", l.world, ", data-parallel size: ", l.dp, ", context-parallel size: ", l.cp,
                  ", hierarchical context-parallel sizes: None",  // there, no comma follows
                  "tensor-model-parallel size: ", l.tp, ", encoder-tensor-model-parallel size: 0",
                  ", pipeline-model-parallel size: ", l.pp, ", encoder-pipeline-model-parallel size: 0");
  return concat("using world size: ", l.world, ", data-parallel-size: ", l.dp, ", tensor-model-parallel size: ", l.tp,
                ", pipeline-model-parallel size: ", l.pp, " ");
}

Lines megatron_argument_lines(std::vector<std::pair<std::string, std::string>> arguments) {
  Lines lines;
  for (const auto& [name, value] : arguments) lines.push_back(concat("  ", dotted(name), " ", value));
  std::ranges::stable_sort(lines, {}, without_case);
  lines.insert(lines.begin(), "------------------------ arguments ------------------------");
  lines.emplace_back("-------------------- end of arguments ---------------------");
  return lines;
}

std::string megatron_vocabulary_line(std::int64_t tokens, std::int64_t rows) {
  return concat(" > padded vocab (size: ", tokens, ") with ", rows - tokens, " dummy tokens (new size: ", rows, ")");
}

std::string megatron_parameters_line(std::int64_t tp_rank, std::int64_t pp_rank, std::int64_t parameters) {
  return concat(" > number of parameters on (tensor, pipeline) model parallel rank (", tp_rank, ", ", pp_rank,
                "): ", parameters);
}

Lines megatron_target_lines(const std::array<std::int64_t, 3>& samples) {
  return {" > datasets target sizes (minimum size):", concat("    train:      ", samples[0]),
          concat("    validation: ", samples[1]), concat("    test:       ", samples[2])};
}

Lines megatron_split_lines(const std::vector<std::int64_t>& boundaries) {
  Lines lines{" > dataset split:"};
  for (std::size_t set = 0; set < 3; ++set) {
    const std::int64_t first = boundaries[set], end = boundaries[set + 1];
    lines.push_back(concat("    ", std::array{"train", "validation", "test"}[set], ":"));
    lines.push_back(concat("     document indices in [", first, ", ", end, ") total of ", end - first, " documents"));
  }
  return lines;
}

std::string megatron_saving_line(MegatronFormat format, std::int64_t iteration, const std::string& folder) {
  return formatted("saving checkpoint at iteration %7lld to ", whole(iteration)) + folder +
         (format == MegatronFormat::core ? " in isobar format" : "");
}

std::string megatron_saved_line(MegatronFormat format, std::int64_t iteration, const std::string& folder) {
  const char* const word = format == MegatronFormat::core ? "from" : "at";
  return formatted("  successfully saved checkpoint %s iteration %7lld to ", word, whole(iteration)) + folder;
}

std::string megatron_loading_line(std::int64_t iteration, const std::string& folder) {
  return concat(" loading checkpoint from ", folder, " at iteration ", iteration);
}

std::string megatron_loaded_line(std::int64_t iteration, const std::string& folder) {
  return concat("  successfully loaded checkpoint from ", folder, " at iteration ", iteration);
}

Lines megatron_timer_lines(const std::vector<MegatronTimer>& timers) {
  if (timers.empty()) return {};
  Lines lines{"(min, max) time across ranks (ms):"};
  for (const MegatronTimer& timer : timers)
    lines.push_back("    " +
                    (timer.name + " ").append(kDottedColumns - std::min(kDottedColumns, timer.name.size() + 1), '.') +
                    formatted(": (%.2f, %.2f)", timer.min_ms, timer.max_ms));
  return lines;
}

std::string megatron_footprint_line(double held, double peak) {
  return formatted("Theoretical memory footprints: weight and optimizer=%.2f MB, activation=%.2f MB, total=%.2f MB",
                   held / kMega, (peak - held) / kMega, peak / kMega);
}

std::string megatron_memory_line(std::int64_t rank, std::int64_t iteration, const MegatronMemory& memory) {
  const auto text = [](double bytes) { return python_float(bytes / kMega); };
  return concat("[Rank ", rank, "] (after ", iteration,
                " iterations) memory (MB) | allocated: ", text(memory.allocated),
                " | max allocated: ", text(memory.max_allocated), " | reserved: ", text(memory.reserved),
                " | max reserved: ", text(memory.max_reserved));
}

double megatron_flops_of_sample(const GptSizes& s) {
  const auto number = [](std::int64_t value) { return static_cast<double>(value); };
  const double layers = number(s.layers), width = number(s.width), tokens = number(s.seq_length);
  const double of_mlp = 12 * layers * width * number(s.hidden);
  const double of_attention =
      12 * layers * width * width * (2 + tokens / (2 * width)) * (number(s.head_size) * number(s.heads) / width);
  return tokens * (of_mlp + of_attention + 6 * width * number(s.rows));
}

}  // namespace isobar
