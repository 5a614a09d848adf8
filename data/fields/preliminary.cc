#include "data/fields/preliminary.h"

#include <cstddef>

#include "kernels/common/check.h"
#include "kernels/common/comma_list.h"

namespace isobar {

PreliminarySteps find_preliminary(const FieldSeries& series) {
  const auto [begin, end] = series.range();
  PreliminarySteps found{.steps = end - begin};
  std::vector<PreliminaryData> files;
  for (std::size_t f = 0; f < series.file_count(); ++f) {
    files.push_back(series.file(f).preliminary());
    found.is_told = found.is_told || !files.back().steps.empty();
    if (files.back().is_unread) found.unread_files.push_back(series.file_name(f));
  }
  if (!found.is_told) return found;
  for (std::int64_t step = begin; step < end; ++step) {
    bool is_preliminary = false;
    for (std::size_t track = 0; track < series.timeline().tracks(); ++track) {
      const Place at = series.timeline().place(step, track);
      const std::vector<std::uint8_t>& steps = files[at.file].steps;
      is_preliminary = is_preliminary || (!steps.empty() && steps[static_cast<std::size_t>(at.step)] != 0);
    }
    if (!is_preliminary) continue;
    if (!found.first) found.first = step;
    ++found.count;
  }
  return found;
}

std::string describe(const PreliminarySteps& found, const FieldSeries& series) {
  std::string text;
  if (found.count > 0) {
    text = concat(found.count, " of ", found.steps, found.steps == 1 ? " step is" : " steps are",
                  " preliminary (expver 5)");
    if (series.hours_since_1970(*found.first)) text += ", the first of " + series.time_of(*found.first).iso();
  }
  if (!found.unread_files.empty())
    text += concat(text.empty() ? "" : "; ", comma_list(found.unread_files),
                   found.unread_files.size() == 1 ? " has" : " have",
                   " an expver whose text isobar does not read: whether its data are preliminary is unknown");
  return text;
}

}  // namespace isobar
