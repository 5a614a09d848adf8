// Options of the config for a run: its folder, and how often it logs, validates and saves.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "engine/keys.h"

namespace isobar {

// Whether a run goes on by itself where its folder has one; else --resume has to say so.
enum class Resuming : std::uint8_t { no, automatic };

template <>
struct EnumNames<Resuming> {
  static constexpr std::array names{"false", "auto"};
};

struct RunOptions {
  std::string expdir = "/logs";
  std::int64_t log_every = 10;
  std::int64_t validate_every = 0;
  std::int64_t checkpoint_every = 0;
  std::int64_t keep_checkpoints = 3;
  Resuming resume = Resuming::no;

  KeyTable keys();
};

}  // namespace isobar
