// Options of the config for a run: its folder, and how often it logs, validates and saves.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "engine/keys.h"

namespace isobar {

// Whether a run goes on by itself where its folder has one; else --resume has to say so.
enum class Resuming : std::uint8_t { no, automatic };

template <>
struct EnumNames<Resuming> {
  static constexpr std::array names{"false", "auto"};
};

// Whose weights the test set is scored with: the best ones, or those of the last iteration.
enum class TestWeights : std::uint8_t { best, last };

template <>
struct EnumNames<TestWeights> {
  static constexpr std::array names{"best", "last"};
};

struct RunOptions {
  std::string expdir = "/logs";
  std::int64_t log_every = 10;
  std::int64_t validate_every = 0;
  std::int64_t checkpoint_every = 0;
  std::int64_t keep_checkpoints = 3;
  Resuming resume = Resuming::no;
  bool validate_at_start = true;
  TestWeights test_weights = TestWeights::best;
  std::optional<std::int64_t> exit_interval = {};  // iterations; null: none
  double exit_duration_mins = 0;                   // minutes; 0: none

  KeyTable keys();
};

}  // namespace isobar
