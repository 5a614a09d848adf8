// The lines of Megatron-LM's log, to the character, in two vintages: legacy, of 2022 (the version of NVIDIA's course),
// and core, of core_v0.12 (2025). Scripts look for them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/train/log_lines.h"
#include "engine/keys.h"

namespace isobar {

enum class MegatronFormat : std::uint8_t { legacy, core };

template <>
struct EnumNames<MegatronFormat> {
  static constexpr std::array names{"legacy", "core"};
};

// A number as Python prints a float: 6e-05, 0.1, 4294967296.0.
std::string python_float(double value);

// What a training line tells, of the iterations since the last one.
struct MegatronTraining {
  std::int64_t iteration = 0, iterations = 0;  // done, and of the run
  std::int64_t consumed_samples = 0;           // of the run so far
  double seconds_per_iteration = 0;            // without validations and checkpoints
  double lr = 0;                               // of the next update
  std::int64_t global_batch_size = 0;          // of the last iteration
  double loss = 0;                             // mean over the iterations that were not skipped; 0: there are none
  double loss_scale = 1;                       // of the next iteration
  std::optional<double> grad_norm = {};        // of the last iteration; none: it was skipped
  std::optional<double> zeros = {}, params_norm = {}, tflops = {};  // none: not asked for
  std::int64_t skipped = 0, nan = 0;
};

// now: "2022-11-30 14:05:09", which core begins with.
std::string megatron_training_line(const MegatronTraining& training, MegatronFormat format, const std::string& now);

// "iteration 1000", "the end of training for val data": which evaluation it is, of this iteration and set.
std::string megatron_evaluation(MegatronFormat format, std::int64_t iteration, const char* set);
// Between two lines of dashes. The perplexity is exp(min(20, loss)).
Lines megatron_validation_lines(const std::string& which, double loss);
double megatron_perplexity(double loss);

// "[before the start of training step] datetime: 2022-11-30 14:05:09 ".
std::string megatron_datetime_line(const std::string& what, const std::string& now);
std::string megatron_now();  // local time

struct MegatronLayout {
  std::int64_t world = 1, dp = 1, tp = 1, pp = 1, cp = 1;
};
std::string megatron_world_line(const MegatronLayout& layout, MegatronFormat format);

// Names and values, sorted by name without regard to case, between two titles.
Lines megatron_argument_lines(std::vector<std::pair<std::string, std::string>> arguments);

std::string megatron_vocabulary_line(std::int64_t tokens, std::int64_t rows);
std::string megatron_parameters_line(std::int64_t tp_rank, std::int64_t pp_rank, std::int64_t parameters);
// Samples of the training, validation and test set.
Lines megatron_target_lines(const std::array<std::int64_t, 3>& samples);
// Boundaries of the three sets, in documents (data/text/sample_index.h: split_documents).
Lines megatron_split_lines(const std::vector<std::int64_t>& boundaries);

std::string megatron_saving_line(MegatronFormat format, std::int64_t iteration, const std::string& folder);
std::string megatron_saved_line(MegatronFormat format, std::int64_t iteration, const std::string& folder);
std::string megatron_loading_line(std::int64_t iteration, const std::string& folder);
std::string megatron_loaded_line(std::int64_t iteration, const std::string& folder);

struct MegatronTimer {
  std::string name;
  double min_ms = 0, max_ms = 0;  // over the ranks
};
Lines megatron_timer_lines(const std::vector<MegatronTimer>& timers);

struct MegatronMemory {
  double allocated = 0, max_allocated = 0, reserved = 0, max_reserved = 0;  // bytes
};
// What a step will need: bytes that are held between steps, and at its peak. Of core; legacy has no such line.
std::string megatron_footprint_line(double held, double peak);
std::string megatron_memory_line(std::int64_t rank, std::int64_t iteration, const MegatronMemory& memory);

// Operations of one sample of a dense GPT, forward and backward, as Megatron-LM counts them.
//   seq_length · (12·L·C·F + 12·L·C²·(2 + seq_length / (2·C))·(HS·NH / C) + 6·C·V)
//   source  NVIDIA/Megatron-LM core_v0.12, its number of floating-point operations
struct GptSizes {
  std::int64_t layers = 0, width = 0, hidden = 0, heads = 0, head_size = 0, seq_length = 0, rows = 0;
};
double megatron_flops_of_sample(const GptSizes& sizes);

}  // namespace isobar
