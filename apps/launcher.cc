#include "apps/launcher.h"

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "kernels/common/check.h"

namespace isobar {

namespace {

std::optional<std::int64_t> number_in(const char* variable) {
  const char* value = std::getenv(variable);
  if (value == nullptr) return std::nullopt;
  const std::string_view text(value);
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

// SLURM_NTASKS and SLURM_PROCID are set in a batch script's own shell too, where one process runs. Within a step of
// srun the step has a number; those of the batch script, of an interactive shell and the like lie above these.
bool is_in_srun_step() {
  constexpr std::int64_t kFirstSpecialStep = 0xfffffff0;
  const std::optional<std::int64_t> step = number_in("SLURM_STEP_ID");
  return step && *step < kFirstSpecialStep && number_in("SLURM_PROCID");
}

}  // namespace

void refuse_several_tasks() {
  const auto refuse = [](const char* variable) {
    const std::int64_t tasks = number_in(variable).value_or(1);
    ISOBAR_CHECK(tasks <= 1, variable, " is ", tasks, ": this version trains as one task; start one only");
  };
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "WORLD_SIZE"})
    refuse(variable);
  if (is_in_srun_step()) refuse("SLURM_NTASKS");
}

}  // namespace isobar
