// The voice of Megatron-LM in a run: its lines on stdout and in out.log, and its tags of TensorBoard, beside isobar's
// own journal. `isobar pretrain-gpt` asks for it. Only the first rank has one; the sums over ranks that it tells are
// made by the loop.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/train/megatron_lines.h"
#include "apps/train/tensorboard.h"
#include "apps/train/trainer.h"

namespace isobar {

struct MegatronVoice {
  MegatronFormat format = MegatronFormat::legacy;
  std::vector<std::pair<std::string, std::string>> arguments = {};  // as Python prints them
  std::vector<std::string> accepted = {};                           // a line for each flag that changes nothing
  // Boundaries of the three sets, in documents, once the data are known to be whole; null: not told.
  std::function<std::vector<std::int64_t>()> split = {};
  MegatronLayout layout = {};
  std::string dtype = "float32";  // of the parameters, as PyTorch calls it
  std::int64_t log_every = 100;
  std::string tensorboard_folder = {};  // empty: no tags
  std::int64_t tensorboard_every = 1;
  std::int64_t timing_level = 0;  // which timers there are: 0, 1 or 2
  // What TensorBoard gets.
  bool timers = false, batch_size = false, perplexity = false, memory = false, world_size = false;
  bool learning_rate = true, loss_scale = true;
  // What lines have besides.
  bool params_norm = false, zeros = false, throughput = false;

  // Those of the flags, from the world's line to the end of the arguments.
  Lines start_lines() const;
};

// What a run holds, told before it begins.
struct MegatronRun {
  std::int64_t iterations = 0;
  std::array<std::int64_t, 3> samples = {};  // of train, valid, test
  // {tp rank, pp rank, parameters} of every rank that shares its samples with the first one.
  std::vector<std::array<std::int64_t, 3>> parameters = {};
};

// An iteration, told of by all ranks.
struct MegatronIteration {
  std::int64_t iteration = 0;
  std::int64_t samples = 0, consumed_samples = 0;  // of its batch, and of the run so far
  StepResult result = {};
  double seconds = 0;
  std::optional<double> zeros = {}, params_norm = {};
};

// The seconds of an interval in phases of a step, summed; the loop takes least and largest of all ranks.
struct PhaseSeconds {
  double forward_backward = 0, batch_generator = 0, gradients = 0, optimizer = 0;

  void add(const StepResult& result);
};
// Names of the phases that a timing level has, in order.
std::vector<std::string> megatron_timer_names(std::int64_t timing_level);
std::vector<double> of_level(const PhaseSeconds& seconds, std::int64_t timing_level);

class MegatronJournal {
 public:
  using Say = std::function<void(const std::string& line)>;

  // config: of the run, as config.json has it. purge_step: see Journal.
  MegatronJournal(MegatronVoice voice, const nlohmann::ordered_json& config, Say say,
                  std::optional<std::int64_t> purge_step, std::int64_t first_iteration);

  void begin(const MegatronRun& run);
  void training_begins();
  // timers: where the iteration ends an interval of log_every, and there are any.
  void iteration(const MegatronIteration& step, const std::vector<MegatronTimer>& timers);
  bool ends_interval(std::int64_t iteration) const { return iteration % voice_.log_every == 0; }

  void validated(std::int64_t iteration, std::int64_t consumed_samples, double loss);
  // The memory of a step of the first rank, in bytes: at its peak, and between steps.
  void predicts(std::size_t peak, std::size_t held);
  void saving(std::int64_t iteration, const std::string& folder);
  void saved(std::int64_t iteration, const std::string& folder);
  void loaded(std::int64_t iteration, const std::string& folder);
  void training_ends();
  void validated_at_end(std::int64_t iteration, std::int64_t consumed_samples, double loss);
  // Has no scalars: Megatron-LM writes the loss of the test set as one of the validation set.
  void tested(std::int64_t iteration, double loss);
  void exits(const std::string& why);

  const MegatronVoice& voice() const { return voice_; }

 private:
  void say(const Lines& lines) const;
  // A scalar by iterations, and the same by samples.
  void scalar(const std::string& tag, double value, std::int64_t iteration, std::int64_t samples);
  void write_scalars(const MegatronIteration& step);
  void write_validation(std::int64_t iteration, std::int64_t consumed_samples, double loss);
  void end_interval(const MegatronIteration& step, const std::vector<MegatronTimer>& timers);
  std::optional<double> tflops(double seconds_per_iteration, std::int64_t samples) const;

  const MegatronVoice voice_;
  const Say say_;
  double flops_of_sample_ = 0;
  std::int64_t tokens_ = 0, rows_ = 0;
  std::vector<std::int64_t> split_ = {};  // boundaries in documents; empty: not known
  std::int64_t iterations_ = 0;
  std::optional<TensorBoardWriter> board_;
  std::int64_t last_validation_ = -1;  // the iteration whose validation was written last
  // Since the last line.
  std::int64_t advanced_ = 0, skipped_ = 0;
  double loss_ = 0, seconds_ = 0;
  bool memory_is_told_ = false;
};

}  // namespace isobar
