// Weights that begin with those of another model: other channels, other patches, another grid, another program's.
#include "models/partial_start.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "apps/train/model_file.h"
#include "comm/thread_ranks.h"
#include "comm/whole_tensors.h"
#include "engine/files/safetensors.h"
#include "models/cnn/recipe.h"
#include "models/forecast/forecaster.h"
#include "models/forecast/meaning.h"
#include "models/vit/recipe.h"
#include "models/vit/resize.h"
#include "tests/harness/findings.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

namespace isobar::testing {
namespace {

using Values = std::vector<double>;
using Names = std::vector<std::string>;

constexpr std::int64_t kBatch = 2, kWidth = 16;

Values places(double first, double step, std::int64_t count) {
  Values values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(first + step * static_cast<double>(i));
  return values;
}

struct Model {
  Names channels{"u10", "t2m", "msl"};
  std::int64_t rows = 8, columns = 16, patch = 2;
  bool predicts_change = true;
  std::int64_t history = 0;
  Values latitudes = {}, longitudes = {};
  std::vector<std::string> units = {};
  std::int64_t seed = 3;
  std::shared_ptr<NetworkRecipe> network = nullptr;  // null: a ViT
  bool has_time_planes = true;
};

std::shared_ptr<NetworkRecipe> network_of(const Model& m) {
  if (m.network) return m.network;
  return std::make_shared<VitRecipe>(
      VitOptions{.embed_dim = kWidth, .depth = 1, .num_heads = 2, .patch_size = m.patch});
}

ForecasterOptions options_of(const Model& m) {
  ForecasterOptions options{.network = network_of(m), .forecast = {}};
  options.forecast.img_size = {m.rows, m.columns};
  options.forecast.n_in_channels = options.forecast.n_out_channels = std::ssize(m.channels);
  options.forecast.predict_change = m.predicts_change;
  options.forecast.time_features = m.has_time_planes;
  options.forecast.history = m.history;
  options.forecast.pad_grid = m.rows % m.patch != 0 || m.columns % m.patch != 0;
  return options;
}

FieldsInfo info_of(const Model& m) {
  FieldsInfo info;
  info.channel_names = m.channels;
  info.statistics = {Values(m.channels.size(), 0.0), Values(m.channels.size(), 1.0)};
  info.row_weights = Values(static_cast<std::size_t>(m.rows), 1.0);
  info.latitudes = m.latitudes;
  info.longitudes = m.longitudes;
  info.units = m.units;
  return info;
}

std::unique_ptr<Forecaster> made(const Model& m, const Parallel& parallel = Parallel::alone()) {
  return std::make_unique<Forecaster>(options_of(m), ComputeOptions{.dtype = ArithmeticType::fp64, .seed = m.seed},
                                      info_of(m), Device{}, parallel);
}

FieldsMeaning meaning(const Model& m) {
  return meaning_of(options_of(m).forecast, info_of(m), *network_of(m));
}

std::string values_text(const Forecaster& forecaster, const std::string& name) {
  for (const NamedParameter& p : forecaster.parameters().named())
    if (p.name == name) return nlohmann::json(forecaster.parameters().weight(p).to_vector()).dump();
  return "";
}

Values values_of(const Forecaster& forecaster, const std::string& name) {
  return nlohmann::json::parse(values_text(forecaster, name)).get<Values>();
}

// Every weight is another one than the initial ones.
void train(Forecaster& forecaster) {
  for (const NamedParameter& p : forecaster.parameters().named()) {
    Tensor weight = forecaster.parameters().weight(p);
    Values values = weight.to_vector();
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] += 0.05 * std::sin(0.37 * static_cast<double>(i) + static_cast<double>(p.name.size()));
    weight.set_values(values);
  }
}

class Source {
 public:
  explicit Source(Model m = {}) : model(std::move(m)), forecaster(made(model)) {
    train(*forecaster);
    write();
  }
  void write() const { write_model(file(), *forecaster, nlohmann::ordered_json::object(), {}); }
  std::filesystem::path file() const { return folder_ / "model.safetensors"; }

  PartialStart start_of(const Model& target) const { return start_of(target, meaning(model)); }
  PartialStart start_of(const Model& target, const FieldsMeaning& theirs) const {
    return {file(), made(target)->parameters(), *network_of(target), theirs, meaning(target)};
  }
  std::unique_ptr<Forecaster> begun(const Model& target) const {
    std::unique_ptr<Forecaster> forecaster = made(target);
    start_of(target).apply(forecaster->parameters());
    return forecaster;
  }

  const Model model;
  const std::unique_ptr<Forecaster> forecaster;

 private:
  TemporaryFolder folder_;
};

std::string line_of(const PartialStart& start, const std::string& name) {
  for (const std::string& line : start.lines())
    if (line.starts_with(name + ": ")) return line.substr(name.size() + 2);
  return "no line";
}

// [kBatch, planes, rows, columns] of numbers that a name, a row and a column make.
Values plane(const std::string& name, std::int64_t sample, std::int64_t rows, std::int64_t columns) {
  Values values;
  for (std::int64_t i = 0; i < rows * columns; ++i)
    values.push_back(std::sin(0.61 * static_cast<double>(i) + 2.3 * static_cast<double>(name.front()) +
                              static_cast<double>(name.size() + static_cast<std::size_t>(sample))));
  return values;
}

Names planes_of(const Model& m) {
  Names names;
  for (const auto& [name, unit] : meaning(m).inputs) names.push_back(name);
  return names;
}

Tensor tensor_of(const Values& values, Shape shape) {
  Tensor t = Tensor::empty(std::move(shape), DType::fp64, Device{});
  t.set_values(values);
  return t;
}

Tensor input_of(const Model& m) {
  Values values;
  for (std::int64_t sample = 0; sample < kBatch; ++sample)
    for (const std::string& name : planes_of(m)) {
      const Values one = plane(name, sample, m.rows, m.columns);
      values.insert(values.end(), one.begin(), one.end());
    }
  return tensor_of(values, {kBatch, std::ssize(planes_of(m)), m.rows, m.columns});
}

// The forecast's channel of this name, of all samples.
Values forecast_by(const Forecaster& forecaster, const Model& m, const std::string& channel) {
  const Tensor y = forecaster.forecast(input_of(m));
  const auto at = std::ranges::find(m.channels, channel) - m.channels.begin();
  Values values;
  for (std::int64_t sample = 0; sample < kBatch; ++sample) {
    const Values one =
        y.slice((sample * std::ssize(m.channels) + at) * m.rows * m.columns, {m.rows * m.columns}).to_vector();
    values.insert(values.end(), one.begin(), one.end());
  }
  return values;
}

double largest_difference(const Values& a, const Values& b) {
  if (a.size() != b.size()) return INFINITY;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

// Every patch of every plane resized for itself.
Values resized_patches(const Values& fields, std::int64_t rows, std::int64_t columns, std::int64_t from,
                       std::int64_t to) {
  const Matrix resize = bilinear_matrix(from, to);
  const std::int64_t points = rows * columns, down = rows / from, across = columns / from;
  const auto planes = static_cast<std::int64_t>(fields.size()) / points;
  Values out(static_cast<std::size_t>(planes * down * to * across * to));
  for (std::int64_t v = 0; v < planes; ++v)
    for (std::int64_t i = 0; i < down; ++i)
      for (std::int64_t j = 0; j < across; ++j) {
        Values patch;
        for (std::int64_t y = 0; y < from; ++y)
          for (std::int64_t x = 0; x < from; ++x)
            patch.push_back(fields[static_cast<std::size_t>(v * points + (i * from + y) * columns + j * from + x)]);
        const Values larger = on_both_axes(resize, resize, patch);
        for (std::int64_t y = 0; y < to; ++y)
          for (std::int64_t x = 0; x < to; ++x)
            out[static_cast<std::size_t>((v * down * to + i * to + y) * across * to + j * to + x)] =
                larger[static_cast<std::size_t>(y * to + x)];
      }
  return out;
}

const std::map<std::string, std::string> kSameTensors{
    {"norm.weight", "taken"}, {"blocks.0.attn.q.weight", "taken"}, {"patch_embed.proj.bias", "taken"}};

}  // namespace

TEST_CASE("partial start: the same model is taken whole, bit for bit") {
  const Source source;
  Model target = source.model;
  target.seed = 8;
  const PartialStart start = source.start_of(target);
  for (const std::string& line : start.lines()) CHECK(line.ends_with(": taken"));
  const auto begun = source.begun(target);
  CHECK(begun->parameters().weights().to_vector() == source.forecaster->parameters().weights().to_vector());
}

TEST_CASE("partial start: with other channels, in another order, the old ones are forecast as before") {
  // A head that forecasts the change begins at 0, another one at random.
  for (const std::int64_t history : {0, 1}) {
    const bool predicts_change = history == 1;
    const Source source({.predicts_change = predicts_change, .history = history});
    const Model target{.channels = {"msl", "z500", "2m_temperature", "t850", "u10"},
                       .predicts_change = predicts_change,
                       .history = history,
                       .seed = 9};
    const auto begun = source.begun(target);
    CHECK(largest_difference(forecast_by(*begun, target, "msl"), forecast_by(*source.forecaster, source.model, "msl")) <
          1e-12);
    CHECK(largest_difference(forecast_by(*begun, target, "u10"), forecast_by(*source.forecaster, source.model, "u10")) <
          1e-12);
    const PartialStart start = source.start_of(target);
    for (const auto& [name, sentence] : kSameTensors) CHECK(line_of(start, name) == sentence);
    CHECK(line_of(start, "pos_embed") == "taken");
    CHECK(line_of(start, "patch_embed.proj.weight") ==
          (history == 0 ? "7 of 9 channels by name, 0 for new ones: z500, t850"
                        : "10 of 14 channels by name, 0 for new ones: z500, t850, z500 of 1 steps before, t850 of 1 "
                          "steps before"));
    CHECK(line_of(start, "head.weight") == "3 of 5 channels by name, initial values for new ones: z500, t850");
    // The head's rows of a new channel are the initial ones of this seed.
    const auto initial = made(target);
    const Values head = values_of(*begun, "head.weight"), first = values_of(*initial, "head.weight");
    for (std::size_t row = 0; row < head.size() / kWidth; ++row) {
      const bool is_new = row % 5 == 1 || row % 5 == 3;
      CHECK(std::equal(head.begin() + static_cast<std::ptrdiff_t>(row * kWidth),
                       head.begin() + static_cast<std::ptrdiff_t>((row + 1) * kWidth),
                       first.begin() + static_cast<std::ptrdiff_t>(row * kWidth)) == is_new);
    }
  }
  // Fewer channels.
  const Source source;
  const Model target{.channels = {"msl", "u10"}};
  CHECK(line_of(source.start_of(target), "head.weight") == "2 of 2 channels by name");
}

TEST_CASE("partial start: with larger patches on a finer grid, resized fields give the resized forecast") {
  for (const std::int64_t patch : {2, 3, 4}) {
    const Source source;
    const Model& small = source.model;
    const Model large{.rows = 4 * patch, .columns = 8 * patch, .patch = patch, .seed = 5};
    const auto begun = source.begun(large);
    const Tensor input = input_of(small);
    const Values expected =
        resized_patches(source.forecaster->forecast(input).to_vector(), small.rows, small.columns, 2, patch);
    const Tensor finer = tensor_of(resized_patches(input.to_vector(), small.rows, small.columns, 2, patch),
                                   {kBatch, input.size(1), large.rows, large.columns});
    CHECK(largest_difference(begun->forecast(finer).to_vector(), expected) < 1e-12);
    if (patch == 2) continue;
    const std::string sentence = concat("patches of 2 x 2 points become ", patch, " x ", patch);
    CHECK(line_of(source.start_of(large), "patch_embed.proj.weight") == sentence);
    CHECK(line_of(source.start_of(large), "head.weight") == sentence);
    CHECK(line_of(source.start_of(large), "pos_embed") == "taken");
  }
}

// pos_embed of the source: f(latitude, longitude) of the centres of its patches.
template <class F>
void set_positions(const Source& source, const Values& latitudes, const Values& longitudes, const F& f) {
  for (const NamedParameter& p : source.forecaster->parameters().named()) {
    if (p.name != "pos_embed") continue;
    Values values;
    for (const double latitude : latitudes)
      for (const double longitude : longitudes)
        for (std::int64_t c = 0; c < kWidth; ++c) values.push_back(f(latitude, longitude) * static_cast<double>(c + 1));
    Tensor(source.forecaster->parameters().weight(p)).set_values(values);
  }
  source.write();
}

TEST_CASE("partial start: positions are interpolated by latitude and longitude, round the globe") {
  // Centres of 2 x 2 points: latitudes 67.5, 22.5, ..., longitudes 11.25, 56.25, ..., 326.25.
  const Source source({.latitudes = places(78.75, -22.5, 8), .longitudes = places(0, 22.5, 16)});
  const Values rows{67.5, 22.5, -22.5, -67.5}, columns = places(11.25, 45, 8);
  set_positions(source, rows, columns, [](double latitude, double longitude) { return latitude + 1000 * longitude; });
  // Half as far apart; the first column begins elsewhere, and counts from -180.
  const Model fine{
      .rows = 16, .columns = 32, .latitudes = places(84.375, -11.25, 16), .longitudes = places(-180, 11.25, 32)};
  CHECK(line_of(source.start_of(fine), "pos_embed") ==
        "interpolated from 4 x 8 to 8 x 16 patches, by latitude and longitude");
  const auto begun = source.begun(fine);
  const Values found = values_of(*begun, "pos_embed");
  const auto at = [&](std::size_t row, std::size_t column) { return found[(row * 16 + column) * kWidth]; };
  // Rows of centres: 78.75 (beyond the first one), 56.25, 33.75, ...; columns: -174.375 = 185.625, 208.125, ...
  const auto expected_row = [](double latitude) { return std::clamp(latitude, -67.5, 67.5); };
  for (std::size_t row = 0; row < 8; ++row)
    for (std::size_t column = 0; column < 16; ++column) {
      const double latitude = 78.75 - 22.5 * static_cast<double>(row);
      double longitude = 185.625 + 22.5 * static_cast<double>(column);
      if (longitude >= 360) longitude -= 360;
      // Between 326.25 and 371.25, which is 11.25, the value falls from one end to the other.
      const double along = longitude < 11.25    ? 326.25 + (longitude + 33.75) / 45 * (11.25 - 326.25)
                           : longitude > 326.25 ? 326.25 + (longitude - 326.25) / 45 * (11.25 - 326.25)
                                                : longitude;
      INFO(row << ", " << column);
      CHECK(at(row, column) == Approx(expected_row(latitude) + 1000 * along).epsilon(1e-12));
    }
}

TEST_CASE("partial start: a region gets the positions of its place on the globe, and elsewhere those of the grid") {
  const Source source({.latitudes = places(78.75, -22.5, 8), .longitudes = places(0, 22.5, 16)});
  set_positions(source, {67.5, 22.5, -22.5, -67.5}, places(11.25, 45, 8),
                [](double latitude, double longitude) { return latitude + 1000 * longitude; });
  const Model region{.rows = 4, .columns = 4, .latitudes = places(60, -5, 4), .longitudes = places(100, 5, 4)};
  const Values found = values_of(*source.begun(region), "pos_embed");
  for (std::size_t row = 0; row < 2; ++row)
    for (std::size_t column = 0; column < 2; ++column)
      CHECK(found[(row * 2 + column) * kWidth + 1] ==
            Approx(2 * (57.5 - 10 * static_cast<double>(row) + 1000 * (102.5 + 10 * static_cast<double>(column)))));
  // Between the globe's last column of patches and its first one: the globe goes round, the region does not.
  const Model behind_last{.rows = 4, .columns = 4, .latitudes = places(60, -5, 4), .longitudes = places(340, 5, 4)};
  CHECK(line_of(source.start_of(behind_last), "pos_embed") ==
        "interpolated from 4 x 8 to 2 x 2 patches, by latitude and longitude");
  const Values positions = values_of(*source.begun(behind_last), "pos_embed");
  for (std::size_t column = 0; column < 2; ++column) {
    const double along = 326.25 + (342.5 + 10 * static_cast<double>(column) - 326.25) / 45 * (11.25 - 326.25);
    CHECK(positions[column * kWidth] == Approx(57.5 + 1000 * along));
  }

  const Source of_region({.latitudes = places(60, -2, 8), .longitudes = places(100, 2, 16)});
  CHECK(line_of(of_region.start_of({.latitudes = places(60, -2, 8), .longitudes = places(460, 2, 16)}), "pos_embed") ==
        "taken");
  CHECK(line_of(of_region.start_of(
                    {.rows = 16, .columns = 32, .latitudes = places(60, -1, 16), .longitudes = places(200, 1, 32)}),
                "pos_embed") == "interpolated from 4 x 8 to 8 x 16 patches, by the place in the grid");

  // A region over the meridian of 0: its longitudes jump within a patch, on one side or on both.
  const Values going_on = places(331, 2, 16);  // 331, ..., 359 and 361
  Values jumping = going_on;
  jumping.back() = 1;
  for (const auto& [theirs, ours] : {std::pair(jumping, going_on), {going_on, jumping}, {jumping, jumping}}) {
    const Source over_zero({.latitudes = places(60, -2, 8), .longitudes = theirs});
    CHECK(line_of(over_zero.start_of({.latitudes = places(60, -2, 8), .longitudes = ours}), "pos_embed") == "taken");
  }
}

TEST_CASE("partial start: of a padded grid the added rows lie where the data's rows would go on") {
  // 7 rows and one more: its centre lies at -61, beyond the data's last one.
  const Source source({.rows = 7, .latitudes = places(60, -20, 7), .longitudes = places(0, 22.5, 16)});
  const FieldsMeaning fields = meaning(source.model);
  CHECK(fields.height == 8);
  REQUIRE(fields.latitudes.size() == 8);
  CHECK(fields.latitudes.back() == Approx(-80));
  CHECK(line_of(source.start_of(source.model), "pos_embed") == "taken");
}

TEST_CASE("partial start: weights of another program are taken by shape, in the order of their channels") {
  const Source source;
  const auto line = [&](const Model& target, const char* name) {
    return line_of(source.start_of(target, FieldsMeaning()), name);
  };
  CHECK(line({}, "patch_embed.proj.weight") == "taken");
  CHECK(line({}, "pos_embed") == "taken");
  const Model fine{.rows = 16, .columns = 32, .longitudes = places(0, 11.25, 32)};
  CHECK(line(fine, "pos_embed") == "interpolated from 4 x 8 to 8 x 16 patches, by the place in the grid");
  const Model more{.channels = {"u10", "t2m", "msl", "t850"}};
  CHECK(line(more, "patch_embed.proj.weight") == "new: 7 channels in the file, 8 here, and their names are not known");
  CHECK(line(more, "head.weight") == "new: 3 channels in the file, 4 here, and their names are not known");
  CHECK(line({.rows = 16, .columns = 16}, "pos_embed") == "new: 32 patches in the file, whose grid is not known");
}

TEST_CASE("partial start: what does not fit begins anew, and the line says why") {
  const Source source;
  Model other;
  other.network =
      std::make_shared<VitRecipe>(VitOptions{.embed_dim = kWidth, .depth = 2, .num_heads = 2, .patch_size = 2});
  CHECK(line_of(source.start_of(other), "blocks.1.norm1.weight") == "new: the file does not have it");
  const Source deep({.network = other.network});
  const PartialStart of_one = deep.start_of({});
  CHECK(of_one.lines().back().starts_with("not used of the file: blocks.1."));
  CHECK_THAT(of_one.lines().back(), ContainsSubstring("blocks.1.norm1.weight") && !ContainsSubstring("blocks.0") &&
                                        !ContainsSubstring("head"));
  CHECK(line_of(of_one, "blocks.0.norm1.weight") == "taken");
  other.network =
      std::make_shared<VitRecipe>(VitOptions{.embed_dim = 2 * kWidth, .depth = 1, .num_heads = 2, .patch_size = 2});
  CHECK_THROWS_WITH(source.start_of(other), ContainsSubstring("none of its tensors fits this network"));
  CHECK(line_of(source.start_of({.predicts_change = false}), "head.weight") ==
        "new: it gives the change in the file, the fields here (config key predict_change)");
  CHECK(line_of(source.start_of({.channels = {"z500", "z850"}}), "head.weight") ==
        "new: no channel of the file is forecast here");
  // The time planes are read by both.
  CHECK(line_of(source.start_of({.channels = {"z500", "z850"}}), "patch_embed.proj.weight") ==
        "4 of 6 channels by name, 0 for new ones: z500, z850");
  const Source timeless({.predicts_change = false, .has_time_planes = false});
  CHECK(line_of(timeless.start_of({.channels = {"z500", "z850"}, .has_time_planes = false}),
                "patch_embed.proj.weight") == "new: no channel of the file is read here");
  CHECK(line_of(timeless.start_of({.has_time_planes = false}), "head.weight") ==
        "new: it gives the fields in the file, the change here (config key predict_change)");

  const auto cnn = [](std::int64_t depth) {
    return std::make_shared<CnnRecipe>(CnnOptions{.width = 6, .depth = depth});
  };
  const Source convolutions({.network = cnn(3)});
  const PartialStart deeper = convolutions.start_of({.network = cnn(4)});
  CHECK(std::ranges::any_of(deeper.lines(), [](const std::string& line) { return line.ends_with(": taken"); }));
  CHECK(std::ranges::any_of(deeper.lines(), [](const std::string& line) { return line.find(": new: ") != line.npos; }));
  const PartialStart of_a_vit = source.start_of({.predicts_change = true});
  CHECK_THROWS_WITH(convolutions.start_of({}), ContainsSubstring("none of its tensors fits this network"));
}

TEST_CASE("partial start: refused are other units, rows that run the other way, and numbers that are not finite") {
  const Source source({.latitudes = places(70, -20, 8), .units = {"m/s", "K", "Pa"}});
  Model target{.channels = {"t2m", "sp"}, .latitudes = places(70, -20, 8), .units = {"degC", "Pa"}};
  CHECK_THROWS_WITH(source.start_of(target), "channel t2m is in degC, but in K in " + source.file().string());
  target.units = {"K", "Pa"};
  CHECK_NOTHROW(source.start_of(target));
  // A diagnostic is forecast and not read: its unit is that of an output alone.
  FieldsMeaning theirs = meaning(source.model);
  theirs.outputs.at(1).unit = "degC";
  CHECK_THROWS_WITH(source.start_of(target, theirs), "channel t2m is in K, but in degC in " + source.file().string());
  target.latitudes = places(-70, 20, 8);
  CHECK_THROWS_WITH(source.start_of(target),
                    source.file().string() + ": its rows run from north to south, and those of the data the other way");
  for (const char* name : {"patch_embed.proj.weight", "norm.bias"}) {
    const Source broken;
    for (const NamedParameter& p : broken.forecaster->parameters().named())
      if (p.name == name) Tensor(broken.forecaster->parameters().weight(p)).slice(1, {1}).set_values({NAN});
    broken.write();
    const Model wider{.channels = {"u10", "t2m", "msl", "sp"}};
    CHECK_THROWS_WITH(broken.begun(wider),
                      broken.file().string() + ": tensor " + name + " holds numbers that are not finite");
  }
}

TEST_CASE("partial start: ranks that split the model begin with the weights of one rank") {
  const Source source;
  const Model target{.channels = {"msl", "z500", "t2m"}, .rows = 16, .columns = 16, .patch = 4, .seed = 4};
  const auto whole = source.begun(target);
  Findings findings;
  run_ranks({.ranks = 4}, [&](const Communicator& world) {
    const Parallel parallel = Parallel::start(world, {.tp = 2, .cp = 2}, "tp-cp-dp");
    const auto part = made(target, parallel);
    source.start_of(target).apply(part->parameters());
    visit_whole(part->parameters(), {"", part->parameters().weights(), {}}, world,
                [&](const NamedParameter& p, const Tensor& values) {
                  findings.expect(values.to_vector() == values_of(*whole, p.name), p.name);
                });
  });
  CHECK(findings.wrong() == "");
}

}  // namespace isobar::testing
