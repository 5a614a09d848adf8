// Options of the config for a run: its folder, and how often it logs, validates and saves.
#pragma once

#include <cstdint>
#include <string>

#include "engine/keys.h"

namespace isobar {

struct RunOptions {
  std::string expdir = "/logs";
  std::int64_t log_every = 10;
  std::int64_t validate_every = 0;
  std::int64_t checkpoint_every = 0;
  std::int64_t keep_checkpoints = 3;

  KeyTable keys();
};

}  // namespace isobar
