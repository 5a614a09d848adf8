// The classifier against PyTorch (tests/golden/README.md), from IDX files on: logits, loss, gradients, ten updates.
#include "models/classification/classifier.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/tape.h"
#include "models/classification/metrics.h"
#include "tests/data/files/idx_files.h"
#include "tests/harness/forecast_config.h"
#include "tests/harness/golden_comparison.h"

namespace isobar {
namespace {

using testing::Arithmetic, testing::Golden, testing::kFp64, testing::NamedValues;
using testing::check_budget, testing::check_exact;

std::string bytes_of(const std::vector<float>& values) {
  std::string bytes;
  for (const float value : values) bytes += static_cast<char>(static_cast<unsigned char>(value));
  return bytes;
}

// The golden model, made by the recipe from files of the golden images.
class Digits {
 public:
  explicit Digits(const Golden& golden, Arithmetic arithmetic, nlohmann::json keys = {}) {
    const Shape shape = golden.shape("images");
    const testing::ImageSet set{static_cast<std::uint32_t>(shape[2]), static_cast<std::uint32_t>(shape[3]),
                                bytes_of(golden.floats("images")), bytes_of(golden.floats("labels"))};
    for (const char* prefix : {"train", "t10k"}) testing::write_images(folder_.path(), prefix, set);
    keys.update(
        {{"task", "classification"}, {"images_path", folder_.path().string()}, {"global_batch_size", shape[0]}});
    config_ = read_config(testing::golden_entries(golden, arithmetic, keys));
    task_ = config_.recipe->open(config_.origins, {})->make_task(config_.compute, arithmetic.device);
    for (const NamedParameter& p : parameters().named())
      parameters().weight(p).set_values(golden.values("weight." + p.name));
    parameters().round_to_compute();
  }

  Classifier& classifier() { return dynamic_cast<Classifier&>(*task_); }
  Parameters& parameters() { return task_->parameters(); }
  TrainerOptions options() const { return config_.trainer_options(); }

 private:
  testing::TemporaryFolder folder_;
  RunConfig config_;
  std::unique_ptr<Task> task_;
};

Batch batch_of(const Golden& golden, Device device) {
  return {{"image", testing::load(golden, "images", device)},
          {"label", testing::load(golden, "labels", device, DType::i32)}};
}

struct ClassifierOutcome {
  std::vector<double> logits, loss;
  NamedValues gradients;
};

ClassifierOutcome run(const Golden& golden, Arithmetic arithmetic,
                      const nlohmann::json& keys = nlohmann::json::object()) {
  Digits digits(golden, arithmetic, keys);
  const Batch batch = batch_of(golden, arithmetic.device);
  Tape tape;
  Tensor loss;
  {
    const TapeScope recording(tape);
    loss = digits.classifier().loss(batch, {});
  }
  return {digits.classifier().logits(batch).to_vector(), loss.to_vector(),
          testing::gradients_of(digits.parameters(), tape, loss, testing::loss_scale_of(golden, arithmetic))};
}

// Ten steps of an emulated GPU take a sanitizer two minutes, and show it nothing that its first pass does not.
#ifdef ISOBAR_SANITIZED
constexpr bool kTrainsEmulated = false;
#else
constexpr bool kTrainsEmulated = true;
#endif

testing::Training train(const Golden& golden, Arithmetic arithmetic) {
  Digits digits(golden, arithmetic, testing::training_keys(golden, "adamw"));
  return testing::train(digits.classifier(), digits.options(), batch_of(golden, Device{}));
}

TEST_CASE("a tiny classifier equals PyTorch in fp64: logits, loss, every gradient") {
  const Golden golden("digits");
  const ClassifierOutcome pass = run(golden, kFp64);
  check_exact("logits", pass.logits, golden.values("output"));
  check_exact("loss", pass.loss, golden.values("loss"));
  REQUIRE(pass.gradients.size() == golden.parameters().size());
  testing::check_exact_gradients(golden, pass.gradients);
}

TEST_CASE("ten steps of AdamW on a classifier equal PyTorch's in fp64") {
  const Golden golden("digits");
  testing::check_exact_training(golden, train(golden, kFp64), "adamw");
}

TEST_CASE("lower precisions of a classifier err at most twice as much as PyTorch in the same precision", "[.long]") {
  const Golden golden("digits");
  NamedValues start;
  for (const std::string& name : golden.parameters()) start[name] = golden.values("weight." + name);
  for (const Arithmetic arithmetic : testing::low_precisions()) {
    const std::string yardstick = std::string("yardstick.") + name_of(arithmetic.dtype) + ".";
    INFO(name_of(arithmetic.dtype) << " on " << name_of(arithmetic.device.kind));
    const ClassifierOutcome pass = run(golden, arithmetic);
    check_budget("logits", pass.logits, golden.values("output"), golden.values(yardstick + "output")[0]);
    check_budget("loss", pass.loss, golden.values("loss"), golden.values(yardstick + "loss")[0]);
    testing::check_gradient_budgets(golden, pass.gradients, yardstick);
    if (arithmetic.device.kind == DeviceKind::emulator && !kTrainsEmulated) continue;
    testing::check_update_budget(golden, train(golden, arithmetic), start, "adamw", yardstick);
  }
}

TEST_CASE("a classifier that recomputes its blocks gives the same bits") {
  const Golden golden("digits");
  const ClassifierOutcome kept = run(golden, kFp64), again = run(golden, kFp64, {{"recompute", true}});
  CHECK(kept.logits == again.logits);
  CHECK(kept.gradients == again.gradients);
}

TEST_CASE("a classifier's score is that of its logits, and is not recorded") {
  const Golden golden("digits");
  Digits digits(golden, kFp64);
  const std::vector<double> logits = golden.values("output"), labels = golden.values("labels");
  const std::size_t classes = logits.size() / labels.size();
  double right = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto row = logits.begin() + static_cast<std::ptrdiff_t>(i * classes);
    right += static_cast<double>(std::max_element(row, row + static_cast<std::ptrdiff_t>(classes)) - row) == labels[i];
  }
  const std::unique_ptr<Metrics> metrics = digits.classifier().metrics();
  metrics->begin();
  Tape tape;
  const TapeScope recording(tape);
  digits.classifier().score(batch_of(golden, Device{}), *metrics);
  CHECK(tape.size() == 0);
  CHECK(dynamic_cast<ClassificationMetrics&>(*metrics).accuracy() == right / static_cast<double>(labels.size()));
  check_exact("loss", {metrics->loss()}, golden.values("loss"));
  REQUIRE(right > 0);
  REQUIRE(right < static_cast<double>(labels.size()));

  const std::vector<Picture> pictures = digits.classifier().pictures(batch_of(golden, Device{}), 0);
  REQUIRE(pictures.size() == 1);
  CHECK(pictures[0].file == "wrong");
}

TEST_CASE("a batch is scored into metrics of its own task only") {
  const Golden golden("digits");
  Digits digits(golden, kFp64);
  class Others : public Metrics {
    void begin() override {}
    std::vector<std::span<double>> sums() override { return {}; }
    double loss() const override { return 0; }
    Report report(DataSplit) const override { return {}; }
  };
  Others metrics;
  CHECK_THROWS_WITH(digits.classifier().score(batch_of(golden, Device{}), metrics),
                    "a batch is scored into metrics that another kind of task made");
}

TEST_CASE("a classifier's settings say what its images are") {
  const Golden golden("digits");
  Digits digits(golden, kFp64);
  const Settings settings = digits.classifier().settings();
  REQUIRE(describes_images(settings));
  const ImagesInfo info = images_info_from(settings);
  CHECK(info.height == 8);
  CHECK(info.width == 12);
  CHECK(info.classes == 5);
  check_exact("mean", {info.mean}, {golden.metadata("mean").get<double>()});
  check_exact("std", {info.std}, {golden.metadata("std").get<double>()});

  CHECK_FALSE(describes_images({}));
  const auto refused = [](const std::string& stored) {
    CHECK_THROWS_AS(images_info_from({{"isobar.images", stored}}), Error);
  };
  refused("");
  refused("[]");
  refused(R"({"height": 8, "width": 12, "classes": 5, "mean": 1})");
  refused(R"({"height": 8, "width": 12, "classes": "five", "mean": 1, "std": 2})");
  for (const char* none : {R"({"height": 8, "width": 12, "classes": 1, "mean": 1, "std": 2})",
                           R"({"height": 0, "width": 12, "classes": 5, "mean": 1, "std": 2})",
                           R"({"height": 8, "width": 0, "classes": 5, "mean": 1, "std": 2})",
                           R"({"height": 8, "width": 12, "classes": 5, "mean": 1, "std": 0})"})
    CHECK_THROWS_WITH(images_info_from({{"isobar.images", none}}), "isobar.images describes no images");
  CHECK(images_info_from({{"isobar.images", R"({"height": 1, "width": 2, "classes": 2, "mean": 0, "std": 3})"}})
            .classes == 2);
}

TEST_CASE("images of another size than the classifier's are refused") {
  const Golden golden("digits");
  Digits digits(golden, kFp64);
  Batch turned = batch_of(golden, Device{});
  turned["image"] = turned["image"].view({40, 1, 12, 8});
  CHECK_THROWS_WITH(digits.classifier().logits(turned),
                    testing::ContainsSubstring("image has the shape [40, 1, 12, 8]") &&
                        testing::ContainsSubstring("the model needs [40, 1, 8, 12]"));
}

}  // namespace
}  // namespace isobar
