#include "models/partial_start.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "data/fields/units.h"
#include "engine/files/flat_tensors.h"
#include "kernels/common/check.h"
#include "kernels/common/comma_list.h"

namespace isobar {
namespace {

using How = TensorStart::How;

// Names and sentences are for people; the units are those of the data.
void check_units(const std::vector<FieldsMeaning::Channel>& theirs, const std::vector<FieldsMeaning::Channel>& ours,
                 const std::string& file) {
  for (const auto& [name, unit] : ours) {
    const auto other = std::ranges::find(theirs, name, &FieldsMeaning::Channel::name);
    if (other == theirs.end() || unit.empty() || other->unit.empty()) continue;
    ISOBAR_CHECK(same_unit(unit, other->unit), "channel ", name, " is in ", unit, ", but in ", other->unit, " in ",
                 file);
  }
}

// Upside down the weights of patches would be worthless, although they fit.
void check_rows(const FieldsMeaning& theirs, const FieldsMeaning& ours, const std::string& file) {
  if (theirs.latitudes.size() < 2 || ours.latitudes.size() < 2) return;
  const auto runs_north = [](const std::vector<double>& rows) { return rows.front() < rows.back(); };
  ISOBAR_CHECK(runs_north(theirs.latitudes) == runs_north(ours.latitudes), file, ": its rows run from ",
               runs_north(theirs.latitudes) ? "south to north" : "north to south",
               ", and those of the data the other way");
}

void check_finite(const std::string& file, const std::string& name, const TensorStart& start,
                  const SafetensorsReader& reader) {
  if (start.how != How::changed) return;  // flat_tensors.h looks at what is taken
  const TensorInfo& info = *reader.find(name);
  const Tensor values = Tensor::empty(info.shape, DType::fp64, Device{});
  reader.read(info, 0, values.numel(), DType::fp64, static_cast<std::byte*>(values.data()));
  ISOBAR_CHECK(is_finite(values), file, ": tensor ", name, " holds numbers that are not finite");
}

std::string line_of_unused(const SafetensorsReader& file, const std::set<std::string>& known) {
  std::vector<std::string> unused;
  for (const TensorInfo& tensor : file.tensors())
    if (!known.contains(tensor.name)) unused.push_back(tensor.name);
  return unused.empty() ? "" : "not used of the file: " + comma_list(unused);
}

}  // namespace

PartialStart::PartialStart(const std::filesystem::path& path, const Parameters& parameters,
                           const NetworkRecipe& network, const FieldsMeaning& theirs, const FieldsMeaning& ours)
    : file_(path) {
  check_units(theirs.inputs, ours.inputs, path.string());
  check_units(theirs.outputs, ours.outputs, path.string());
  check_rows(theirs, ours, path.string());
  const SafetensorsReader file(path);
  std::set<std::string> known;
  for (const NamedParameter& p : parameters.named()) {
    TensorStart start = network.start_of(p.name, p.full_shape, file, theirs, ours);
    check_finite(path.string(), p.name, start, file);
    lines_.push_back(concat(p.name, ": ", start.sentence));
    known.insert(p.name);
    starts_.emplace_back(p.name, std::move(start));
  }
  ISOBAR_CHECK(std::ranges::any_of(starts_, [](const auto& start) { return start.second.how != How::initial; }),
               path.string(), ": none of its tensors fits this network, and nothing would begin with them; it has ",
               comma_list(file.tensors(), &TensorInfo::name));
  if (std::string unused = line_of_unused(file, known); !unused.empty()) lines_.push_back(std::move(unused));
}

void PartialStart::apply(Parameters& parameters) const {
  const FlatBuffer weights{.prefix = "", .values = parameters.weights(), .held = {}};
  std::set<std::string> taken;
  for (const auto& [name, start] : starts_)
    if (start.how == How::taken) taken.insert(name);
  read_named(file_, parameters, weights, taken);
  for (std::size_t i = 0; i < starts_.size(); ++i)
    if (starts_[i].second.how == How::changed) set_whole(weights, parameters.named()[i], starts_[i].second.values);
  parameters.round_to_compute();
}

}  // namespace isobar
