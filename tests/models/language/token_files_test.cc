// A language model on token files: which samples a run and its validation have, in which order, which targets count,
// and which files, options and samples are refused.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "apps/train/loaders.h"
#include "data/text/byte_tokenizer.h"
#include "data/text/token_file.h"
#include "data/text/token_samples.h"
#include "data/text/token_writer.h"
#include "engine/tape.h"
#include "kernels/common/cost_account.h"
#include "kernels/common/trace.h"
#include "kernels/cross_entropy.h"
#include "models/gpt/recipe.h"
#include "models/language/recipe.h"
#include "tests/harness/data_files.h"
#include "tests/harness/error_of.h"
#include "tests/harness/forecast_config.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using testing::ContainsSubstring;

using Ids = std::vector<std::int32_t>;

constexpr std::int32_t kEod = 256;  // of bytes

// A folder with token files of bytes: document d has tokens d, d + 1, ... and the end of the document.
class TokenFiles {
 public:
  std::string write(const std::string& name, int documents, int length, std::string fingerprint = "") const {
    if (fingerprint.empty()) fingerprint = fingerprint_text(ByteTokenizer().fingerprint());
    TokenWriter writer(file(name), TokenType::u16, ExistingFile::replaced);
    for (int d = 0; d < documents; ++d) {
      Ids tokens;
      for (int i = 0; i + 1 < length; ++i) tokens.push_back((d + i) % 256);
      tokens.push_back(kEod);
      writer.add_sequence(tokens);
      writer.end_document();
    }
    writer.finish({.tokenizer = "bytes", .fingerprint = fingerprint, .vocabulary = 258, .eod = kEod, .has_eod = true});
    return file(name);
  }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }

  RunConfig config(std::vector<std::string> assignments = {}) const {
    const std::vector<std::string> first{"task=language_model", "tokenizer=bytes",    "seq_length=4",
                                         "embed_dim=8",         "num_heads=1",        "depth=1",
                                         "split=\"8,1,1\"",     "global_batch_size=2"};
    assignments.insert(assignments.begin(), first.begin(), first.end());
    return read_config(testing::entries_of(assignments));
  }
  // Of a run of 6 iterations of 2 samples.
  std::unique_ptr<OpenedRecipe> opened(const std::vector<std::string>& assignments) const {
    RunConfig made = config(assignments);
    return made.recipe->open(made.origins, {.global_batch_size = 2, .iterations = 6});
  }
  std::string refusal(const std::vector<std::string>& assignments) const {
    return testing::error_of([&] { opened(assignments); });
  }

 private:
  testing::TemporaryFolder folder_;
};

std::string assigned(const std::string& key, const std::string& path) {
  return key + "=" + path;
}

Ids tokens_of(const Dataset& set, std::int64_t sample, const char* tensor = "tokens") {
  const Batch batch = read_batch(set, std::vector<std::int64_t>{sample});
  const std::vector<double> values = tensor_of(batch, tensor).to_vector();
  return {values.begin(), values.end()};
}

std::unique_ptr<LanguageModel> tiny_model(const TextInfo& info) {
  const auto network = std::make_shared<GptRecipe>(
      GptOptions{.embed_dim = 8, .depth = 1, .num_heads = 1, .positions = info.seq_length, .init_std = 0.3});
  return std::make_unique<LanguageModel>(network, ComputeOptions{}, info, Device{});
}

Tensor ids_of(const Shape& shape, const std::vector<double>& values) {
  Tensor ids = Tensor::empty(shape, DType::i32, Device{});
  ids.set_values(values);
  return ids;
}

}  // namespace

TEST_CASE("token files: a run has its samples in Megatron's order, and a validation always the same ones") {
  const TokenFiles files;
  const std::string a = files.write("a", 20, 6);
  const auto data = files.opened({assigned("data_path", a), "eval_iters=3"});
  CHECK(data->sentences() == std::vector<std::string>{"from the data: vocab_size 258, positions 4"});
  CHECK(data->train().samples() == 12);
  CHECK(data->valid().samples() == 6);
  REQUIRE(data->test() != nullptr);
  CHECK(data->test()->samples() == 6);

  const auto documents = std::make_shared<TokenFile>(a);
  const TokenSamples expected(documents, {.first = 0, .last = 16, .seq_length = 4, .samples = 12, .seed = 1234});
  const TokenSamples judged(documents, {.first = 16, .last = 18, .seq_length = 4, .samples = 6, .seed = 1234});
  for (std::int64_t i = 0; i < 12; ++i) CHECK(tokens_of(data->train(), i) == tokens_of(expected, i));
  for (std::int64_t i = 0; i < 6; ++i) CHECK(tokens_of(data->valid(), i) == tokens_of(judged, i));
  const auto seeded = files.opened({assigned("data_path", a), "data_seed=7"});
  bool differs = false;
  for (std::int64_t i = 0; i < 12; ++i) differs |= tokens_of(seeded->train(), i) != tokens_of(expected, i);
  CHECK(differs);
  CHECK(seeded->valid().samples() == 2);  // all: (2 documents of 6 tokens - 1) / 4

  // The order is the set's own: nobody shuffles it again, and a resumed run finds its place by what is consumed.
  Loaders loaders(data->train(), data->valid(), {.shuffle = true}, {.global_batch_size = 2}, 5, Device{});
  CHECK(loaders.next()->samples == std::vector<std::int64_t>{0, 1});
  CHECK(loaders.next()->samples == std::vector<std::int64_t>{2, 3});
  loaders.seek({0, 5});
  CHECK(loaders.next()->samples == std::vector<std::int64_t>{10, 11});
}

TEST_CASE("token files: paths of each set, blends with and without weights, and shares that are too small for a test") {
  const TokenFiles files;
  const std::string a = files.write("a", 20, 6), b = files.write("b", 40, 6), c = files.write("c", 3, 6);
  const auto own = files.opened({assigned("train_token_path", a), assigned("valid_token_path", c)});
  CHECK(own->valid().name() == c);
  CHECK(own->valid().samples() == 4);  // (18 - 1) / 4
  CHECK(own->test() == nullptr);
  CHECK(own->notes().empty());
  // A set of each, and what is judged of them.
  const std::vector<std::string> paths{assigned("train_token_path", a), assigned("valid_token_path", c),
                                       assigned("test_token_path", b)};
  const auto three = files.opened(paths);
  CHECK(three->train().name() == a);
  CHECK(three->valid().name() == c);
  REQUIRE(three->test() != nullptr);
  CHECK(three->test()->name() == b);
  CHECK(three->test()->samples() == 59);  // (240 - 1) / 4
  const GivenWeights weights{"w.safetensors", three->make_task({}, Device{})->settings()};
  std::vector<std::string> judged = paths;
  judged.insert(judged.end(), {"vocab_size=258", "positions=4"});
  for (const auto& [split, name, samples] :
       {std::tuple(DataSplit::train, a, 29), std::tuple(DataSplit::valid, c, 4), std::tuple(DataSplit::test, b, 59)}) {
    const auto opened = files.config(judged).recipe->open_split(split, weights);
    CHECK(opened->note() == "judged: all of " + name);
    CHECK(opened->samples().samples() == samples);
  }
  const auto mock =
      files.config({"mock_data=true", "tokenizer=numbers", "vocab_size=4096", "seq_length=512", "positions=512"});
  const GivenWeights of_mock{"w.safetensors",
                             files.opened({"mock_data=true", "tokenizer=numbers", "vocab_size=4096", "seq_length=512"})
                                 ->make_task({}, Device{})
                                 ->settings()};
  CHECK(mock.recipe->open_split(DataSplit::test, of_mock)->note() ==
        "judged: the test set, of documents that are made up");

  const std::string blend = "data_path=[3,\"" + a + "\",1,\"" + b + "\"]";
  const auto mixed = files.opened({blend});
  CHECK(mixed->train().samples() == 12);
  CHECK(mixed->valid().samples() == 2 + 5);  // every sample of 2 and of 4 documents
  std::map<Ids, int> seen;
  for (std::int64_t i = 0; i < 7; ++i) ++seen[tokens_of(mixed->valid(), i)];
  CHECK(seen.size() == 7);
  CHECK(files.opened({blend, "eval_iters=40"})->valid().samples() == 80);

  const auto small = files.opened({assigned("data_path", a), "split=\"18,2,0\""});
  CHECK(small->test() == nullptr);
  CHECK(small->notes() == std::vector<std::string>{"there is no test set: split 18,2,0 gives it no whole sample"});
  CHECK_THAT(files.refusal({assigned("data_path", a), "split=\"20,0,0\""}),
             ContainsSubstring("valid has no documents, but all samples are taken of it: of 20 documents, split 20,0,0 "
                               "gives 20 to train, 0 to valid and 0 to test"));
  CHECK_THAT(files.refusal({"data_path=[\"" + c + "\",\"" + c + "\"]", "split=\"2,1,0\""}),
             ContainsSubstring("train: 12 samples are taken of a blend without weights of " + c + ", " + c +
                               ", which has only 4 in one epoch; give weights"));
  CHECK_THAT(files.refusal({assigned("data_path", c), "split=\"2,1,0\"", "seq_length=6"}),
             ContainsSubstring("1 documents hold 6 tokens, fewer than a sample of 6 + 1"));
}

TEST_CASE("token files: both rules of rounding a split") {
  const TokenFiles files;
  const std::string a = files.write("a", 1000, 6);
  const auto samples = [&](const char* rule) {
    return files.opened({assigned("data_path", a), "split=\"1,1,1\"", assigned("split_rule", rule)})->valid().samples();
  };
  CHECK(samples("legacy") == (333 * 6 - 1) / 4);
  CHECK(samples("core") == (334 * 6 - 1) / 4);
}

TEST_CASE("token files: a sample has the tensors that are known without the files") {
  const TokenFiles files;
  const std::string a = files.write("a", 20, 6);
  const auto names = [](const std::vector<TensorSpec>& layout) {
    std::vector<std::string> found;
    for (const TensorSpec& spec : layout) found.push_back(spec.name + to_string(spec.shape));
    return found;
  };
  std::set<std::vector<std::string>> layouts;
  for (const char* key : {"reset_position_ids", "reset_attention_mask", "eod_mask_loss"}) {
    const std::vector<std::string> assignments{assigned("data_path", a), assigned(key, "true"), "vocab_size=258",
                                               "positions=4"};
    const auto known = names(files.config(assignments).recipe->on_shapes()->sample_layout({}));
    CHECK(known == names(files.opened(assignments)->train().layout()));
    layouts.insert(known);
  }
  CHECK(layouts.size() == 3);
}

TEST_CASE("token files: behind the end of a document no target counts, if eod_mask_loss says so") {
  const TokenFiles files;
  const std::string a = files.write("a", 20, 6);
  const auto data = files.opened({assigned("data_path", a), "eod_mask_loss=true"});
  std::int64_t ignored = 0, counted = 0;
  for (std::int64_t i = 0; i < 12; ++i) {
    const Ids tokens = tokens_of(data->train(), i), targets = tokens_of(data->train(), i, "target");
    for (std::size_t t = 0; t < 4; ++t) {
      CHECK(targets[t] == (tokens[t] == kEod ? kIgnoredLabel : tokens[t + 1]));
      ++(targets[t] == kIgnoredLabel ? ignored : counted);
    }
  }
  CHECK(ignored > 4);
  const auto task = data->make_task({}, Device{});
  CHECK_FALSE(task->counts_samples());
  std::vector<std::int64_t> all(12);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
  CHECK(task->weight(read_batch(data->train(), all)) == static_cast<double>(counted));
  // A plain run counts samples: all have as many targets.
  CHECK(files.opened({assigned("data_path", a)})->make_task({}, Device{})->counts_samples());
}

TEST_CASE("token files: what contradicts itself or the files is refused") {
  const TokenFiles files;
  const std::string a = files.write("a", 20, 6), other = files.write("other", 20, 6, "0123456789abcdef");
  CHECK(files.refusal({assigned("data_path", other)}) ==
        other + " was made by another tokenizer: its bytes 0123456789abcdef, the run's " +
            fingerprint_text(ByteTokenizer().fingerprint()) +
            "; config key tokenizer and the files that it needs select the run's");
  CHECK_THAT(files.refusal({assigned("data_path", a), "positions=3"}),
             ContainsSubstring("must be at most positions (3), not 4"));
  CHECK_THAT(files.refusal({assigned("data_path", a), assigned("train_token_path", a)}),
             ContainsSubstring("data_path in --set and the paths of each set exclude each other"));
  CHECK_THAT(files.refusal({assigned("train_token_path", a)}),
             ContainsSubstring("valid_token_path is empty; where sets have paths of their own, training and validation "
                               "need one each"));
  for (const char* key : {"valid_token_path", "test_token_path"})
    CHECK(files.refusal({assigned(key, a)}) ==
          "config key train_token_path is empty; where sets have paths of their own, training and validation need one "
          "each");
  CHECK(files.refusal({"mock_data=true", assigned("train_token_path", a)}) ==
        "config key mock_data in --set takes the place of token files, but train_token_path names some");
  CHECK_THAT(files.refusal({assigned("data_path", a), assigned("valid_text_path", "v.txt")}),
             ContainsSubstring("valid_text_path in --set means nothing to token files"));
  CHECK_THAT(files.refusal({assigned("data_path", a), "tokenizer=characters"}),
             ContainsSubstring("characters needs tokenizer_model to read token files, the table that data preprocess "
                               "made beside them; files of another tokenizer need its name"));
  CHECK_THAT(files.refusal({"eod_mask_loss=true"}), ContainsSubstring("needs token files"));
  CHECK_THAT(files.refusal({assigned("data_path", files.file("none"))}), ContainsSubstring("none.idx"));
  CHECK_THAT(files.refusal({"data_path=[1,\"" + a + "\",\"" + a + "\"]"}),
             ContainsSubstring("are neither paths alone nor a weight before each path"));
  RunConfig epochs = files.config({assigned("data_path", a), "num_epochs=2"});
  CHECK_THAT(testing::error_of([&] { epochs.recipe->open(epochs.origins, {.global_batch_size = 2}); }),
             ContainsSubstring("num_epochs in --set does not fit token files, whose order is made for a number of "
                               "samples; set num_iters, or train_samples"));
}

TEST_CASE("token files: a run goes on with the files, the split and the order that it began with") {
  const TokenFiles files;
  const std::string a = files.write("a", 20, 6);
  const auto data = files.opened({assigned("data_path", a)});
  const GivenWeights weights{"w.safetensors", data->make_task({}, Device{})->settings()};
  CHECK_NOTHROW(files.opened({assigned("data_path", a)})->check_resume(weights));
  CHECK_NOTHROW(files.opened({assigned("data_path", a), "eval_iters=1"})->check_resume(weights));
  // More samples in the same order, up to all of an epoch; beyond it the first ones would be others.
  for (const std::string same : {"train_samples=14", "train_samples=23", "train_samples=1"})
    CHECK_NOTHROW(files.opened({assigned("data_path", a), same})->check_resume(weights));
  const auto longer = files.opened({assigned("data_path", a), "train_samples=24"});
  CHECK_NOTHROW(longer->check_start(weights));
  CHECK(
      testing::error_of([&] { longer->check_resume(weights); }) ==
      a + ": 24 training samples would come in another order than those that w.safetensors was trained on: in that of "
          "1 epoch and one apart, not of 1 epoch; that order has at most 23 samples");
  for (const std::string other : {"split=\"7,2,1\"", "data_seed=1", "seq_length=3", "eod_mask_loss=true"}) {
    INFO(other);
    const auto changed = files.opened({assigned("data_path", a), other});
    CHECK_NOTHROW(changed->check_start(weights));
    CHECK(testing::error_of([&] { changed->check_resume(weights); }) ==
          a + ": this is not the text that w.safetensors was trained on");
  }
  // Weights of before, which know their number of samples and not their order: the checksum is of Python's xxhash.
  GivenWeights before = weights;
  auto text = nlohmann::json::parse(before.settings.at("isobar.text"));
  text.erase("order");
  text.erase("most_samples");
  text["trained_on"] = "1ddb3d2adb4b36c2";
  before.settings.at("isobar.text") = text.dump();
  CHECK_NOTHROW(data->check_resume(before));
  CHECK(testing::error_of([&] {
          files.opened({assigned("data_path", a), "train_samples=14"})->check_resume(before);
        }) == a + ": this is not the text that w.safetensors was trained on");
  files.write("a", 20, 7);
  CHECK_THROWS(files.opened({assigned("data_path", a)})->check_resume(weights));
}

TEST_CASE("token files: a run without validation, and one on documents that are made up") {
  const TokenFiles files;
  const std::string a = files.write("a", 20, 6);
  const auto data = files.opened({assigned("data_path", a), "eval_iters=0"});
  CHECK(data->valid().samples() == 0);
  CHECK(data->test() == nullptr);
  Loaders loaders(data->train(), data->valid(), {}, {.global_batch_size = 2}, 5, Device{});
  CHECK_NOTHROW(loaders.try_first_batches());
  CHECK(loaders.valid().samples() == 0);
  CHECK_THAT(testing::error_of([&] { read_batch(data->valid(), std::vector<std::int64_t>{0}); }),
             ContainsSubstring("no validation set: sample 0 of none is asked for"));

  const std::vector<std::string> mock{"mock_data=true", "tokenizer=numbers", "vocab_size=4096", "seq_length=512",
                                      "eval_iters=2"};
  const auto made_up = files.opened(mock);
  CHECK(made_up->train().name() == "mock data");
  CHECK(made_up->train().samples() == 12);
  CHECK(made_up->valid().samples() == 4);
  REQUIRE(made_up->test() != nullptr);
  CHECK(made_up->test()->samples() == 4);
  const auto refused = [&](const std::string& other, const std::string& why) {
    std::vector<std::string> assignments = mock;
    assignments.push_back(other);
    CHECK_THAT(files.refusal(assignments), ContainsSubstring(why));
  };
  refused(assigned("data_path", a), "mock_data in --set takes the place of token files, but data_path names some");
  refused("vocab_size=null", "tokenizer in --set numbers needs vocab_size");
  refused("vocab_size=4000", "mock data has tokens up to 4094, but the vocabulary has only 4000");
  refused("tokenizer=bytes", "mock data has tokens up to 4094, but the vocabulary has only 258");
}

TEST_CASE("token files: a run that has another number of samples goes on with the next one, or not at all") {
  const TokenFiles files;
  const std::string a = files.write("a", 20, 6);
  const auto loaders_of = [&](const OpenedRecipe& data, BatchOptions batch) {
    return Loaders(data.train(), data.valid(), {}, batch, 5, Device{});
  };
  const auto now = files.opened({assigned("data_path", a), "train_samples=20"});
  const Loaders loaders = loaders_of(*now, {.global_batch_size = 4, .grad_accumulation = 2});  // 10 parts
  CHECK(loaders.moved({0, 5}, 13) == Cursor{0, 5});
  CHECK(loaders.moved({1, 0}, 13) == Cursor{0, 6});  // 3 batches; the 13th sample was left out
  CHECK(loaders.moved({0, 6}, 13) == Cursor{0, 6});
  CHECK(loaders.moved({0, 10}, 23) == Cursor{1, 0});
  CHECK_THROWS_WITH(loaders.moved({1, 1}, 13),
                    "the training set had 13 samples, and now has 20; this run has used all "
                    "of them");
  CHECK_THROWS_WITH(loaders.moved({2, 0}, 13), ContainsSubstring("used all of them"));
  CHECK_THROWS_WITH(loaders.moved({0, 11}, 24), ContainsSubstring("used more of them"));
  const Loaders keeping = loaders_of(*now, {.global_batch_size = 4, .incomplete_batch = IncompleteBatch::keep});
  CHECK(keeping.moved({1, 0}, 12) == Cursor{0, 3});
  CHECK(keeping.moved({0, 3}, 13) == Cursor{0, 3});
  CHECK_THROWS_WITH(keeping.moved({1, 0}, 13), ContainsSubstring("used all of them"));  // its last batch had one sample
}

TEST_CASE("token files: one set is opened to judge weights by it, whole") {
  const TokenFiles files;
  const std::string a = files.write("a", 20, 6);
  const auto data = files.opened({assigned("data_path", a), "eval_iters=3"});
  const GivenWeights weights{"w.safetensors", data->make_task({}, Device{})->settings()};
  RunConfig config = files.config({assigned("data_path", a), "vocab_size=258", "positions=4", "train_samples=12"});
  CHECK(config.recipe->open_split(DataSplit::valid, weights)->samples().samples() == 2);
  CHECK(config.recipe->open_split(DataSplit::train, weights)->samples().samples() == (16 * 6 - 1) / 4);
  RunConfig none =
      files.config({assigned("data_path", a), "vocab_size=258", "positions=4", "train_samples=12", "split=\"18,2,0\""});
  CHECK(testing::error_of([&] { none.recipe->open_split(DataSplit::test, weights); }) ==
        "there is no test set: split 18,2,0 gives it no whole sample");
}

TEST_CASE("token files: --data names one by its prefix or its files, and a text by its name") {
  const TokenFiles files;
  const std::string a = files.write("a", 2, 6);
  const RunConfig config = files.config();
  for (const char* ending : {"", ".idx", ".bin"}) {
    const auto paths = config.recipe->paths_in(a + ending);
    REQUIRE(paths.size() == 1);
    CHECK(paths[0].first == "data_path");
    CHECK(paths[0].second == a);
  }
  CHECK(config.recipe->paths_in(a + ".json")[0].first == "text_path");
  // A file of its own name is a text, whatever lies beside it; and so is one of tokens without an index.
  for (const char* name : {"t", "nano.bin"}) testing::write_text(files.file(name), "a text");
  files.write("t", 2, 6);
  for (const char* name : {"t", "nano.bin"}) {
    const auto paths = config.recipe->paths_in(files.file(name));
    REQUIRE(paths.size() == 1);
    CHECK(paths[0].first == "text_path");
    CHECK(paths[0].second == files.file(name));
  }
  CHECK(config.recipe->paths_in(files.file("t.idx"))[0].second == files.file("t"));
  CHECK(testing::error_of([&] { config.recipe->paths_in(files.file("none.bin")); }) ==
        "--data " + files.file("none.bin") + " does not exist");
  files.write("mine_text_document", 5, 6);
  CHECK(testing::error_of([&] { config.recipe->paths_in(files.file("mine")); }) ==
        "--data " + files.file("mine") +
            " does not exist; token files of this prefix: " + files.file("mine_text_document"));
  const std::string folder = files.file("");
  CHECK(testing::error_of([&] { config.recipe->paths_in(folder); }) ==
        "--data " + folder + " is a folder; a language model is trained on a file of text, or on a token file");
}

// The loss of a sample of two documents is that of the two by themselves; with one of the two resets alone it is not.
TEST_CASE("token files: documents of a sample that do not see each other are as by themselves") {
  const auto model = tiny_model({.vocabulary = 7, .seq_length = 5});
  const auto loss = [&](const Batch& batch) { return model->loss(batch, {}).item(); };
  Batch packed{{"tokens", ids_of({1, 6}, {1, 2, 6, 4, 3, 5})}};  // 6 ends the first document
  const double as_one = loss(packed);
  packed["position"] = ids_of({1, 5}, {0, 1, 2, 0, 1});
  const double with_positions = loss(packed);
  packed["key_begin"] = ids_of({1, 5}, {0, 0, 0, 3, 3});
  const double apart = loss(packed);
  packed.erase("position");
  const double with_mask = loss(packed);
  const auto by_itself = tiny_model({.vocabulary = 7, .seq_length = 3});
  const double first = by_itself->loss({{"tokens", ids_of({1, 4}, {1, 2, 6, 4})}}, {}).item();
  const auto shorter = tiny_model({.vocabulary = 7, .seq_length = 2});
  const double second = shorter->loss({{"tokens", ids_of({1, 3}, {4, 3, 5})}}, {}).item();
  CHECK(std::abs(apart - (3 * first + 2 * second) / 5) < 1e-6);
  for (const double other : {as_one, with_positions, with_mask}) CHECK(std::abs(apart - other) > 1e-4);
}

// What a step on shapes predicts of packed documents is what a trace of the same samples counts.
TEST_CASE("token files: attention over documents that do not see each other costs what it computes") {
  const TokenFiles files;
  const std::string a = files.write("a", 40, 3);
  const auto pass = [](const Task& task, const Batch& batch) {
    Tape tape;
    const TapeScope on(tape);
    const Tensor loss = task.loss(batch, Pass::training({.seed = 1, .stream = 0}));
    tape.backward(loss);
  };
  for (const bool resets : {true, false}) {
    const auto data = files.opened({assigned("data_path", a), "num_heads=2", "embed_dim=16",
                                    assigned("reset_attention_mask", resets ? "true" : "false")});
    std::vector<std::int64_t> all(static_cast<std::size_t>(data->train().samples()));
    std::iota(all.begin(), all.end(), 0);
    const Batch batch = read_batch(data->train(), all);
    Batch shapes;
    for (const auto& [name, tensor] : batch)
      shapes[name] = Tensor::empty(tensor.shape(), tensor.dtype(), Device{DeviceKind::meta});
    const CostAccount predicted;
    pass(*data->make_task({}, Device{DeviceKind::meta}), shapes);
    const auto task = data->make_task({}, Device{});
    std::map<std::string, Cost> counted;
    {
      const Trace trace;
      pass(*task, batch);
      for (const TraceEvent& event : trace.events()) {
        counted[event.name].bytes += event.cost.bytes;
        counted[event.name].flops += event.cost.flops;
      }
    }
    double pairs = 0;
    for (std::int64_t sample : all)
      for (std::int32_t i = 0; i < 4; ++i)
        pairs += i + 1 - (resets ? tokens_of(data->train(), sample, "key_begin")[static_cast<std::size_t>(i)] : 0);
    CHECK(pairs < (resets ? 8 : 11) * 12);  // of 4 tokens of documents of 3: 6 or 7 pairs of 10
    CHECK(counted.at("attention_fwd").flops == testing::Approx(4 * pairs * 16).epsilon(1e-12));
    for (const char* kernel : {"attention_fwd", "attention_bwd"}) {
      INFO(kernel);
      const Cost& told = predicted.kernels().at(kernel).cost;
      CHECK(told.flops == testing::Approx(counted.at(kernel).flops).epsilon(1e-12));
      CHECK(told.bytes == counted.at(kernel).bytes);
    }
    // Of one sample it is its own pairs that are counted, not the mean.
    for (const std::int64_t sample : {0, 1, 2, 3}) {
      double own = 0, flops = 0;
      for (std::int32_t i = 0; i < 4; ++i)
        own += i + 1 - (resets ? tokens_of(data->train(), sample, "key_begin")[static_cast<std::size_t>(i)] : 0);
      const Trace trace;
      pass(*task, read_batch(data->train(), std::vector<std::int64_t>{sample}));
      for (const TraceEvent& event : trace.events()) flops += event.name == "attention_fwd" ? event.cost.flops : 0;
      CHECK(flops == testing::Approx(4 * own * 16).epsilon(1e-12));
    }
  }
}

TEST_CASE("token files: a prediction without data knows documents where their files are") {
  const TokenFiles files;
  const auto note = [&](const std::vector<std::string>& assignments) {
    RunConfig config = files.config(assignments);
    config.recipe->fill_without_data(config.origins);
    return config.recipe->on_shapes()->note_on_cost();
  };
  const std::string a = files.write("a", 40, 2), reset = "reset_attention_mask=true";
  CHECK(note({assigned("data_path", a)}).empty());
  CHECK(note({assigned("data_path", a), reset}) ==
        "attention sees 60.0 % of the causal pairs, those within one document");  // two documents of 2 in 4 tokens
  CHECK(note({assigned("data_path", files.file("elsewhere")), reset}) ==
        "attention sees all causal pairs in this prediction: no token files tell how long documents are");
  RunConfig run = files.config({assigned("data_path", a), reset, "train_samples=12"});
  const auto data = run.recipe->open(run.origins, {.global_batch_size = 2, .iterations = 6});
  const std::vector<std::string> notes = data->notes();
  CHECK(std::ranges::find(notes, "attention sees 60.0 % of the causal pairs, those within one document") !=
        notes.end());
}

TEST_CASE("token files: as many samples as can be put in order are tried, and one more is refused by num_iters") {
  const TokenFiles files;
  const std::string a = files.write("a", 20, 6);
  const auto refusal = [&](std::int64_t batch, std::int64_t iterations, const std::vector<std::string>& more = {}) {
    std::vector<std::string> assignments{assigned("data_path", a), "seq_length=12", "eval_iters=0"};
    assignments.insert(assignments.end(), more.begin(), more.end());
    RunConfig config = files.config(assignments);
    return testing::error_of(
        [&] { config.recipe->open(config.origins, {.global_batch_size = batch, .iterations = iterations}); });
  };
  // Of 96 tokens an epoch they would take more epochs than can be shuffled, which is found behind it.
  CHECK(refusal(1, 4294967293) == a + ": 4294967293 samples of 12 tokens take 536870912 epochs of 16 documents, more "
                                      "than can be shuffled");
  CHECK(refusal(1, 4294967294) ==
        "config key num_iters asks for 4294967294 batches of 1 samples, more than can be put in order");
  CHECK_THAT(refusal(3, 1431655764), ContainsSubstring(": 4294967292 samples of 12 tokens take "));
  CHECK(refusal(3, 1431655765) ==
        "config key num_iters asks for 1431655765 batches of 3 samples, more than can be put in order");
  CHECK(refusal(3, 1431655765, {"train_samples=12"}).empty());  // which decides how many are put in order
}

TEST_CASE("token files: samples that the config counts need no number of iterations, and fill no key") {
  const TokenFiles files;
  const std::string a = files.write("a", 20, 6);
  RunConfig counted = files.config({assigned("data_path", a), "train_samples=14", "num_epochs=1"});
  const auto data = counted.recipe->open(counted.origins, {.global_batch_size = 2});
  CHECK(data->train().samples() == 14);
  const auto samples_of = [](RunConfig& config) {
    return dynamic_cast<const LanguageRecipe&>(*config.recipe).text.train_samples;
  };
  CHECK(samples_of(counted) == 14);
  RunConfig filled = files.config({assigned("data_path", a)});
  filled.recipe->open(filled.origins, {.global_batch_size = 2, .iterations = 6});
  CHECK(samples_of(filled) == 12);
}

TEST_CASE("token files: which part of which files is judged, of each set") {
  const TokenFiles files;
  const std::string a = files.write("a", 40, 6), b = files.write("b", 40, 6);
  const auto data = files.opened({assigned("data_path", a)});
  const GivenWeights weights{"w.safetensors", data->make_task({}, Device{})->settings()};
  const auto note = [&](DataSplit split, std::vector<std::string> more) {
    more.insert(more.end(), {"vocab_size=258", "positions=4", "train_samples=12"});
    return files.config(more).recipe->open_split(split, weights)->note();
  };
  for (const auto& [split, name] : {std::pair(DataSplit::train, "training"), std::pair(DataSplit::valid, "validation"),
                                    std::pair(DataSplit::test, "test")})
    CHECK(note(split, {assigned("data_path", a)}) ==
          concat("judged: what split 8,1,1 gives the ", name, " set, of ", a));
  const std::string blend = "data_path=[0.5,\"" + a + "\",1,\"" + b + "\"]";
  CHECK(note(DataSplit::valid, {blend}) ==
        "judged: what split 8,1,1 gives the validation set, of 0.5, " + a + ", 1, " + b);
  CHECK(note(DataSplit::test, {assigned("data_path", a), "eval_iters=1"}) ==
        "judged: what split 8,1,1 gives the test set, of " + a +
            "\nevery sample of the test set is judged; the run's eval_iters took 1 batch");
  CHECK_THAT(note(DataSplit::train, {assigned("data_path", a), "eval_iters=1"}), !ContainsSubstring("eval_iters"));
  CHECK(note(DataSplit::valid, {assigned("train_token_path", a), "valid_token_path=[1,\"" + b + "\",1,\"" + a +
                                                                     "\"]"}) == "judged: all of 1, " + b + ", 1, " + a);
}

TEST_CASE("token files: a prediction looks for all files that a run would open") {
  const TokenFiles files;
  const std::string a = files.write("a", 40, 2), elsewhere = files.file("elsewhere");
  const std::string known = "attention sees 60.0 % of the causal pairs, those within one document",
                    unknown =
                        "attention sees all causal pairs in this prediction: no token files tell how long documents "
                        "are";
  const auto note = [&](std::vector<std::string> assignments) {
    assignments.emplace_back("reset_attention_mask=true");
    RunConfig config = files.config(assignments);
    config.recipe->fill_without_data(config.origins);
    return config.recipe->on_shapes()->note_on_cost();
  };
  CHECK(note({"data_path=[2,\"" + a + "\",1,\"" + a + "\"]"}) == known);
  CHECK(note({"data_path=[2,\"" + a + "\",1,\"" + elsewhere + "\"]"}) == unknown);
  CHECK(note({assigned("train_token_path", a), assigned("valid_token_path", a)}) == known);
  CHECK(note({assigned("train_token_path", elsewhere), assigned("valid_token_path", a)}) == unknown);
  CHECK(note({assigned("data_path", a + ".bin")}) == known);
  CHECK(note({assigned("data_path", a), "tokenizer=characters", assigned("tokenizer_model", elsewhere),
              "vocab_size=258", "positions=4"}) == unknown);
}

TEST_CASE("token files: samples tell where their documents begin, if the config says so") {
  const TokenFiles files;
  const std::string a = files.write("a", 20, 3);
  const auto plain = files.opened({assigned("data_path", a)});
  CHECK(plain->train().layout().size() == 1);
  const auto data = files.opened({assigned("data_path", a), "reset_position_ids=true", "reset_attention_mask=true"});
  REQUIRE(data->train().layout().size() == 3);
  CHECK(data->train().layout()[1].name == "position");
  CHECK(data->train().layout()[2].name == "key_begin");
  for (const char* option : {"reset_position_ids", "reset_attention_mask"})
    CHECK_THAT(files.refusal({std::string(option) + "=true"}),
               ContainsSubstring(std::string("config key ") + option) &&
                   ContainsSubstring("needs token files; a text has no documents"));
}

}  // namespace isobar
