#include "models/vit/start.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "kernels/common/check.h"
#include "kernels/common/comma_list.h"
#include "models/vit/resize.h"

namespace isobar {
namespace {

using How = TensorStart::How;
using FieldChannels = std::vector<FieldsMeaning::Channel>;
using Places = std::vector<double>;

constexpr std::int64_t kNone = -1;
constexpr double kInitial = std::numeric_limits<double>::quiet_NaN();
constexpr double kCircle = 360;

TensorStart initial(const std::string& why) {
  return {.sentence = "new: " + why};
}

std::vector<double> values_of(const TensorInfo& tensor, const SafetensorsReader& file) {
  std::vector<double> values(static_cast<std::size_t>(numel_of(tensor.shape)));
  file.read(tensor, 0, std::ssize(values), DType::fp64, reinterpret_cast<std::byte*>(values.data()));
  return values;
}

// For each of our channels the place of theirs of the same name, or kNone. Where one side has no names, and as many
// channels, they are the same ones in the same order; none for other numbers of them.
struct Match {
  std::vector<std::int64_t> theirs;
  bool is_identity = false;
  std::string sentence = {};  // "2 of 3 channels by name, the others (msl) ..."; empty for all in the same order
};

std::optional<Match> match_channels(const FieldChannels& ours, std::int64_t our_count, const FieldChannels& theirs,
                                    std::int64_t their_count, const char* others) {
  Match match;
  match.theirs.resize(static_cast<std::size_t>(our_count));
  std::iota(match.theirs.begin(), match.theirs.end(), std::int64_t{0});
  match.is_identity = our_count == their_count;
  if (std::ssize(ours) != our_count || std::ssize(theirs) != their_count)
    return match.is_identity ? std::optional(match) : std::nullopt;
  std::vector<std::string> fresh;
  for (std::size_t c = 0; c < ours.size(); ++c) {
    const auto found = std::ranges::find(theirs, ours[c].name, &FieldsMeaning::Channel::name);
    match.theirs[c] = found == theirs.end() ? kNone : found - theirs.begin();
    match.is_identity = match.is_identity && match.theirs[c] == static_cast<std::int64_t>(c);
    if (found == theirs.end()) fresh.push_back(ours[c].name);
  }
  if (match.is_identity) return match;
  match.sentence = concat(ours.size() - fresh.size(), " of ", ours.size(), " channels by name");
  if (!fresh.empty()) match.sentence += concat(", ", others, ": ", comma_list(fresh));
  return match;
}

std::string joined_sentence(const Match& match, std::int64_t from, std::int64_t to) {
  std::string sentence = match.sentence;
  if (from != to)
    sentence +=
        concat(sentence.empty() ? "" : "; ", "patches of ", from, " x ", from, " points become ", to, " x ", to);
  return sentence;
}

bool are_none(const Match& match) {
  return std::ranges::all_of(match.theirs, [](std::int64_t channel) { return channel == kNone; });
}

// The patches of a grid: `rows` x `columns` of them, with centres in degrees where the grid tells them.
struct PatchGrid {
  std::int64_t rows = 0, columns = 0;
  Places latitudes = {}, longitudes = {};
};

// The same longitudes without a jump at 180 or 360 degrees.
Places unwrapped(const Places& longitudes) {
  Places places = longitudes;
  for (std::size_t i = 1; i < places.size(); ++i)
    places[i] = places[i - 1] + std::remainder(longitudes[i] - longitudes[i - 1], kCircle);
  return places;
}

Places centres(const Places& points, std::int64_t patch) {
  Places middles;
  for (std::size_t i = 0; i + static_cast<std::size_t>(patch) <= points.size(); i += static_cast<std::size_t>(patch))
    middles.push_back(std::accumulate(points.begin() + static_cast<std::ptrdiff_t>(i),
                                      points.begin() + static_cast<std::ptrdiff_t>(i) + patch, 0.0) /
                      static_cast<double>(patch));
  return middles;
}

PatchGrid patch_grid(const FieldsMeaning& fields, std::int64_t patch) {
  return {fields.height / patch, fields.width / patch, centres(fields.latitudes, patch),
          centres(unwrapped(fields.longitudes), patch)};
}

// The grid of `tokens` patches that has the form of ours; none if there is none.
std::optional<PatchGrid> grid_like(const PatchGrid& ours, std::int64_t tokens) {
  for (std::int64_t rows = 1; rows <= tokens; ++rows)
    if (tokens % rows == 0 && rows * ours.columns == tokens / rows * ours.rows) return PatchGrid{rows, tokens / rows};
  return std::nullopt;
}

// Whether every centre of ours lies within their patches, along an axis that does not go round.
bool lies_within(const Places& ours, const Places& theirs) {
  if (theirs.size() < 2 || ours.empty()) return false;
  const auto [low, high] = std::ranges::minmax(theirs);
  const double half = (high - low) / static_cast<double>(theirs.size() - 1) * (0.5 + 1e-6);
  return std::ranges::all_of(
      ours, [&, lowest = low, highest = high](double at) { return at >= lowest - half && at <= highest + half; });
}

// Longitudes as near to the middle of theirs as whole circles bring them.
Places moved_to(const Places& theirs, Places ours) {
  const double middle = (theirs.front() + theirs.back()) / 2;
  for (double& at : ours) at = middle + std::remainder(at - middle, kCircle);
  return ours;
}

Places numbers(std::int64_t count, double scale) {
  Places places;
  for (std::int64_t i = 0; i < count; ++i) places.push_back((static_cast<double>(i) + 0.5) * scale);
  return places;
}

struct BothAxes {
  Matrix rows, columns;
  const char* by;
};

BothAxes interpolation_between(const PatchGrid& theirs, const PatchGrid& ours, bool goes_round, bool ours_goes_round) {
  if (!theirs.latitudes.empty() && !theirs.longitudes.empty() && !ours.longitudes.empty() &&
      lies_within(ours.latitudes, theirs.latitudes)) {
    const Places columns = goes_round ? ours.longitudes : moved_to(theirs.longitudes, ours.longitudes);
    if (goes_round || lies_within(columns, theirs.longitudes))
      return {interpolation_matrix(theirs.latitudes, ours.latitudes),
              interpolation_matrix(theirs.longitudes, columns, goes_round ? kCircle : 0), "by latitude and longitude"};
  }
  const auto along = [](std::int64_t from, std::int64_t to, bool is_circle) {
    return interpolation_matrix(numbers(from, 1), numbers(to, static_cast<double>(from) / static_cast<double>(to)),
                                is_circle ? static_cast<double>(from) : 0);
  };
  return {along(theirs.rows, ours.rows, false), along(theirs.columns, ours.columns, ours_goes_round),
          "by the place in the grid"};
}

}  // namespace

TensorStart start_of_patch_weights(const Shape& ours, const TensorInfo& theirs, const SafetensorsReader& file,
                                   const FieldsMeaning& their_fields, const FieldsMeaning& our_fields) {
  const Shape& from = theirs.shape;
  if (from.size() != 4 || from[0] != ours[0] || from[2] != from[3]) return start_by_shape(ours, &theirs);
  const auto match = match_channels(our_fields.inputs, ours[1], their_fields.inputs, from[1], "0 for new ones");
  if (!match)
    return initial(concat(from[1], " channels in the file, ", ours[1], " here, and their names are not known"));
  if (match->is_identity && from == ours) return {How::taken, "taken"};
  if (are_none(*match)) return initial("no channel of the file is read here");
  const Matrix on_axis = transposed(pseudo_inverse_of_bilinear(from[2], ours[2]));
  const std::vector<double> values = values_of(theirs, file);
  const auto old_points = static_cast<std::size_t>(from[2] * from[3]),
             points = static_cast<std::size_t>(ours[2] * ours[3]);
  TensorStart start{How::changed, joined_sentence(*match, from[2], ours[2])};
  for (std::int64_t c = 0; c < ours[0]; ++c) {
    for (const std::int64_t channel : match->theirs) {
      if (channel == kNone) {
        start.values.insert(start.values.end(), points, 0.0);
        continue;
      }
      const std::span patch(values.data() + static_cast<std::size_t>(c * from[1] + channel) * old_points, old_points);
      const std::vector<double> resized = on_both_axes(on_axis, on_axis, patch);
      start.values.insert(start.values.end(), resized.begin(), resized.end());
    }
  }
  return start;
}

TensorStart start_of_head(const Shape& ours, std::int64_t patch, const TensorInfo& theirs,
                          const SafetensorsReader& file, const FieldsMeaning& their_fields,
                          const FieldsMeaning& our_fields) {
  const TensorInfo* const embedding = file.find("patch_embed.proj.weight");
  const std::int64_t their_patch = embedding != nullptr && embedding->shape.size() == 4 ? embedding->shape[2] : patch;
  const Shape& from = theirs.shape;
  const std::int64_t points = patch * patch, old_points = their_patch * their_patch;
  if (from.size() != 2 || from[1] != ours[1] || from[0] % old_points != 0) return start_by_shape(ours, &theirs);
  if (their_fields.adds_input && our_fields.adds_input && their_fields.adds_input != our_fields.adds_input)
    return initial(concat("it gives the ", *their_fields.adds_input ? "change" : "fields", " in the file, the ",
                          *our_fields.adds_input ? "change" : "fields", " here (config key predict_change)"));
  const std::int64_t channels = ours[0] / points, old_channels = from[0] / old_points;
  const auto match =
      match_channels(our_fields.outputs, channels, their_fields.outputs, old_channels, "initial values for new ones");
  if (!match)
    return initial(concat(old_channels, " channels in the file, ", channels, " here, and their names are not known"));
  if (match->is_identity && patch == their_patch) return {How::taken, "taken"};
  if (are_none(*match)) return initial("no channel of the file is forecast here");
  const Matrix resize = bilinear_matrix(their_patch, patch);
  const std::vector<double> values = values_of(theirs, file);
  const std::int64_t width = ours[1];
  TensorStart start{How::changed, joined_sentence(*match, their_patch, patch)};
  start.values.assign(static_cast<std::size_t>(numel_of(ours)), kInitial);
  std::vector<double> of_patch(static_cast<std::size_t>(old_points));
  for (std::int64_t v = 0; v < channels; ++v) {
    const std::int64_t channel = match->theirs[static_cast<std::size_t>(v)];
    if (channel == kNone) continue;
    for (std::int64_t column = 0; column < width; ++column) {
      for (std::int64_t p = 0; p < old_points; ++p)
        of_patch[static_cast<std::size_t>(p)] =
            values[static_cast<std::size_t>((p * old_channels + channel) * width + column)];
      const std::vector<double> resized = on_both_axes(resize, resize, of_patch);
      for (std::int64_t p = 0; p < points; ++p)
        start.values[static_cast<std::size_t>((p * channels + v) * width + column)] =
            resized[static_cast<std::size_t>(p)];
    }
  }
  return start;
}

TensorStart start_of_positions(const Shape& ours, std::int64_t patch, const TensorInfo& theirs,
                               const SafetensorsReader& file, const FieldsMeaning& their_fields,
                               const FieldsMeaning& our_fields) {
  const Shape& from = theirs.shape;
  const TensorInfo* const embedding = file.find("patch_embed.proj.weight");
  const bool has_patches = embedding != nullptr && embedding->shape.size() == 4;
  if (from.size() != 3 || from[2] != ours[2] || !has_patches || our_fields.height == 0)
    return start_by_shape(ours, &theirs);
  const PatchGrid here = patch_grid(our_fields, patch);
  const std::optional<PatchGrid> there =
      their_fields.height > 0 ? patch_grid(their_fields, embedding->shape[2]) : grid_like(here, from[1]);
  if (!there || there->rows * there->columns != from[1])
    return initial(concat(from[1], " patches in the file, whose grid is not known"));
  const BothAxes axes = interpolation_between(*there, here, their_fields.goes_round, our_fields.goes_round);
  if (is_identity(axes.rows) && is_identity(axes.columns)) return {How::taken, "taken"};
  TensorStart start{How::changed, concat("interpolated from ", there->rows, " x ", there->columns, " to ", here.rows,
                                         " x ", here.columns, " patches, ", axes.by)};
  const std::vector<double> values = values_of(theirs, file);
  start.values.resize(static_cast<std::size_t>(numel_of(ours)));
  const std::int64_t width = ours[2];
  std::vector<double> plane(static_cast<std::size_t>(from[1]));
  for (std::int64_t c = 0; c < width; ++c) {
    for (std::int64_t t = 0; t < from[1]; ++t)
      plane[static_cast<std::size_t>(t)] = values[static_cast<std::size_t>(t * width + c)];
    const std::vector<double> interpolated = on_both_axes(axes.rows, axes.columns, plane);
    for (std::int64_t t = 0; t < ours[1]; ++t)
      start.values[static_cast<std::size_t>(t * width + c)] = interpolated[static_cast<std::size_t>(t)];
  }
  return start;
}

}  // namespace isobar
