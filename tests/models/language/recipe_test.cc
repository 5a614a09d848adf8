// The recipe of language models: what it leaves to the text, which texts and weights it refuses, and that a small model
// learns.
#include "models/language/recipe.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "data/text/byte_tokenizer.h"
#include "data/text/character_tokenizer.h"
#include "engine/files/reader.h"
#include "models/language/language_model.h"
#include "models/language/metrics.h"
#include "tests/harness/error_of.h"
#include "tests/harness/forecast_config.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

// A folder with files of text.
class Texts {
 public:
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return file(name);
  }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }

  RunConfig config(std::vector<std::string> assignments = {}) const {
    assignments.insert(assignments.begin(), {"task=language_model", "text_path=" + file("a.txt"), "seq_length=4",
                                             "embed_dim=8", "num_heads=1", "depth=1", "global_batch_size=2"});
    return read_config(testing::entries_of(assignments));
  }
  std::unique_ptr<OpenedRecipe> opened(const std::vector<std::string>& assignments = {}) const {
    RunConfig made = config(assignments);
    return made.recipe->open(made.origins, {});
  }
  std::string refusal(const std::vector<std::string>& assignments = {}) const {
    return testing::error_of([&] { opened(assignments); });
  }

 private:
  testing::TemporaryFolder folder_;
};

std::string forty_characters() {
  return "abcabcabcabcabcabcabcabcabcabcabcabcxäcb";
}

}  // namespace

TEST_CASE("language recipe: vocabulary and positions are the data's, and the end of the text is the validation set") {
  const Texts texts;
  texts.write("a.txt", forty_characters());
  RunConfig config = texts.config();
  const std::unique_ptr<OpenedRecipe> data = config.recipe->open(config.origins, {});
  CHECK(data->sentences() == std::vector<std::string>{"from the data: vocab_size 5, positions 4"});
  CHECK(data->train().samples() == 8);  // of 36 characters
  CHECK(data->valid().samples() == 1);
  CHECK(data->test() == nullptr);
  const Batch batch = read_batch(data->valid(), std::vector<std::int64_t>{0});
  CHECK(tensor_of(batch, "tokens").to_vector() == std::vector<double>{3, 4, 2, 1, 0});
  CHECK(tensor_of(batch, "target").to_vector() == std::vector<double>{4, 2, 1, -100});

  const auto half = texts.opened({"valid_fraction=0.5"});  // 20 characters each
  CHECK(half->train().samples() == 4);
  CHECK(half->valid().samples() == 5);

  texts.write("v.txt", "cab");
  texts.write("t.txt", "xx");
  const std::unique_ptr<OpenedRecipe> own =
      texts.opened({"valid_text_path=" + texts.file("v.txt"), "test_text_path=" + texts.file("t.txt")});
  CHECK(own->train().samples() == 9);  // all 40 characters
  CHECK(own->valid().name() == texts.file("v.txt"));
  CHECK(own->test()->samples() == 1);
}

TEST_CASE("language recipe: a validation takes eval_iters batches of a text, its first ones, or none") {
  const Texts texts;
  texts.write("a.txt", forty_characters());
  texts.write("v.txt", forty_characters());
  texts.write("t.txt", "abcabcabcabc");
  const auto opened = [&](const std::string& assignment) {
    RunConfig config =
        texts.config({"valid_text_path=" + texts.file("v.txt"), "test_text_path=" + texts.file("t.txt"), assignment});
    return config.recipe->open(config.origins, {.global_batch_size = 2});
  };
  const auto whole = opened("eval_iters=null"), some = opened("eval_iters=2"), more = opened("eval_iters=9");
  CHECK(whole->valid().samples() == 10);
  CHECK(whole->test()->samples() == 3);
  CHECK(some->valid().samples() == 4);
  CHECK(some->test()->samples() == 3);
  CHECK(more->valid().samples() == 10);
  const auto tokens_of_third = [](const OpenedRecipe& data) {
    return tensor_of(read_batch(data.valid(), std::vector<std::int64_t>{3}), "tokens").to_vector();
  };
  CHECK(tokens_of_third(*some) == tokens_of_third(*whole));
  const auto none = opened("eval_iters=0");
  CHECK(none->valid().samples() == 0);
  CHECK(none->test() == nullptr);
  CHECK(none->train().samples() == whole->train().samples());

  // Weights are judged by every sample, which a line says.
  const GivenWeights weights{"w.safetensors", whole->make_task({}, Device{})->settings()};
  const auto judged = [&](DataSplit split, const std::string& assignment) {
    RunConfig config =
        texts.config({"valid_text_path=" + texts.file("v.txt"), "vocab_size=5", "positions=4", assignment});
    return config.recipe->open_split(split, weights);
  };
  CHECK(judged(DataSplit::valid, "eval_iters=2")->samples().samples() == 10);
  const std::string all_of_it = concat("judged: all of ", texts.file("v.txt"));
  CHECK(judged(DataSplit::valid, "eval_iters=2")->note() ==
        all_of_it + "\nevery sample of the validation set is judged; the run's eval_iters took 2 batches");
  CHECK(judged(DataSplit::valid, "eval_iters=1")->note() ==
        all_of_it + "\nevery sample of the validation set is judged; the run's eval_iters took 1 batch");
  CHECK(judged(DataSplit::test, "test_text_path=" + texts.file("t.txt"))->note() ==
        "judged: all of " + texts.file("t.txt"));
  CHECK(judged(DataSplit::test, "test_text_path=" + texts.file("t.txt"))->samples().samples() == 3);
  CHECK(judged(DataSplit::valid, "eval_iters=null")->note() == all_of_it);
  CHECK(judged(DataSplit::train, "eval_iters=2")->note().find("eval_iters") == std::string::npos);
}

TEST_CASE("language recipe: a text that looks like JSON lines is read as it is, and a line says so") {
  const Texts texts;
  const auto told = [&](const std::string& contents) {
    texts.write("a.txt", contents);
    RunConfig config = texts.config({});
    return config.recipe->open(config.origins, {.global_batch_size = 2})->sentences().back();
  };
  CHECK(
      told("{\"text\": \"" + forty_characters() + "\"}\n") ==
      texts.file("a.txt") +
          " looks like JSON lines, and is read as plain text: isobar data preprocess makes token files of their texts");
  CHECK(told("{" + forty_characters()).starts_with("from the data: "));
}

TEST_CASE("language recipe: texts that cannot be trained on are refused, with the place") {
  const Texts texts;
  CHECK(texts.refusal().find("a.txt") != std::string::npos);
  texts.write("a.txt", "");
  CHECK(texts.refusal() == texts.file("a.txt") + ": the file is empty");
  texts.write("a.txt", "ab\nc\xff");
  CHECK(texts.refusal() ==
        texts.file("a.txt") +
            ": byte 5 (in line 2) is not UTF-8; isobar data preprocess --invalid replace takes such a text");
  texts.write("a.txt", "abcabc");
  CHECK(texts.refusal() ==
        texts.file("a.txt") + ": a text of 5 tokens is too short to train on windows of 4; it needs twice as many");
  texts.write("a.txt", forty_characters());
  texts.write("v.txt", "abq");
  CHECK(texts.refusal({"valid_text_path=" + texts.file("v.txt")}) ==
        texts.file("v.txt") + ": character U+0071 at byte 3 (in line 1) is not in the table of characters");
  CHECK(texts.refusal({"vocab_size=4"}).find("must be at least 5, the tokens of the tokenizer, not 4") !=
        std::string::npos);
  CHECK(texts.refusal({"positions=3"}).find("must be at most positions (3), not 4") != std::string::npos);
  const RunConfig config = texts.config();
  CHECK(testing::error_of([&] { config.recipe->paths_in(texts.file("b.txt")); }) ==
        "--data " + texts.file("b.txt") + " does not exist");
  CHECK(testing::error_of([&] { config.recipe->on_shapes(); }) ==
        "the number of tokens is left to the data; set vocab_size");
}

TEST_CASE("language recipe: bytes need no table, and the loss is the same whatever the characters") {
  const Texts texts;
  texts.write("a.txt", forty_characters());
  const std::unique_ptr<OpenedRecipe> data = texts.opened({"tokenizer=bytes"});
  CHECK(data->sentences() == std::vector<std::string>{"from the data: vocab_size 258, positions 4"});
}

TEST_CASE("language recipe: a vocabulary may be larger than the tokenizer's, and is then that of other weights") {
  const Texts texts;
  texts.write("a.txt", forty_characters());
  const auto data = texts.opened({"vocab_size=7"});
  CHECK(data->sentences() == std::vector<std::string>{"from the data: positions 4"});
  const Settings settings = data->make_task({}, Device{})->settings();
  const std::string fingerprint = text_info_from(settings).fingerprint;
  CHECK(testing::error_of([&] {
          texts.opened()->check_start({"w.safetensors", settings});
        }) == texts.file("a.txt") + ": its 5 tokens of the tokenizer characters (fingerprint " + fingerprint +
                  ") are not those that w.safetensors was trained on: 7 of characters (" + fingerprint + ")");
  CHECK_NOTHROW(texts.opened({"vocab_size=5"}));
}

TEST_CASE("language recipe: which keys the text of --data takes the place of, in a run and where weights are judged") {
  const Texts texts;
  const RunConfig config = texts.config();
  const auto replaced = [&](const char* key, bool judged) {
    std::vector<std::string> keys = config.recipe->keys_replaced_by(key, judged);
    std::ranges::sort(keys);
    return keys;
  };
  using Keys = std::vector<std::string>;
  CHECK(replaced("data_path", false) == Keys{"mock_data", "test_token_path", "train_token_path", "valid_token_path"});
  CHECK(replaced("text_path", false) ==
        Keys{"data_path", "mock_data", "test_token_path", "tokenizer_model", "train_token_path", "valid_token_path"});
  CHECK(replaced("data_path", true) == Keys{"mock_data", "test_text_path", "test_token_path", "train_token_path",
                                            "valid_text_path", "valid_token_path"});
  CHECK(replaced("text_path", true) ==
        Keys{"data_path", "eod_mask_loss", "mock_data", "reset_attention_mask", "reset_position_ids", "test_text_path",
             "test_token_path", "tokenizer_model", "train_token_path", "valid_text_path", "valid_token_path"});
}

TEST_CASE("language recipe: without its text a model of bytes is known, and that of characters is not") {
  const Texts texts;
  const auto columns = [&](const std::vector<std::string>& assignments) {
    RunConfig config = texts.config(assignments);
    config.recipe->fill_without_data(config.origins);
    const std::unique_ptr<Task> task = config.recipe->on_shapes()->make_task(config.compute, Device{DeviceKind::meta});
    return dynamic_cast<const LanguageModel&>(*task).info().vocabulary;
  };
  CHECK(columns({"tokenizer=bytes"}) == 258);
  CHECK(columns({"tokenizer=bytes", "vocab_size=300"}) == 300);
  CHECK(columns({"vocab_size=9"}) == 9);
  CHECK(testing::error_of([&] { columns({}); }) == "the number of tokens is left to the data; set vocab_size");
}

TEST_CASE("language recipe: how many bytes a token stands for, and a table that only characters have") {
  const TextInfo bytes = text_info(ByteTokenizer(), 260, 4);
  REQUIRE(bytes.bytes->size() == 260);  // with the rows that no token has
  CHECK(bytes.bytes->at(255) == 1);
  for (const std::size_t none : {256U, 257U, 258U, 259U}) CHECK(bytes.bytes->at(none) == 0);
  CHECK(bytes.tokenizer == "bytes");
  CHECK(bytes.fingerprint == "007ceb13f35f6e4c");
  CHECK(bytes.characters.empty());
  CHECK(bytes.vocabulary == 260);
  CHECK(bytes.seq_length == 4);
  const CharacterTokenizer tokenizer(std::set<char32_t>{U'a', U'\u00e9'});
  CHECK(text_info(tokenizer, 2, 4).characters == "{\"characters\":\"aé\"}\n");
  CHECK(*text_info(tokenizer, 2, 4).bytes == std::vector<std::int64_t>{1, 2});
  const Texts texts;
  texts.write("a.txt", forty_characters());
  const testing::TemporaryFolder folder;
  texts.opened({"tokenizer=bytes"})->keep(folder / "stats");
  CHECK_FALSE(std::filesystem::exists(folder / "stats"));
  texts.opened()->keep(folder / "of/characters");
  CHECK(std::filesystem::exists(folder / "of/characters/characters.json"));
}

TEST_CASE("language recipe: the model of a run makes its logits as config key loss_rows says") {
  const Texts texts;
  texts.write("a.txt", forty_characters());
  const auto rows = [&](const std::string& assignment) {
    const std::unique_ptr<Task> task = texts.opened({assignment})->make_task({}, Device{});
    return dynamic_cast<const LanguageModel&>(*task).info().loss_rows;
  };
  CHECK(rows("loss_rows=3") == 3);
  CHECK(rows("loss_rows=0") == 0);
  CHECK(rows("loss_rows=null") == std::nullopt);
}

TEST_CASE("language recipe: what a command for pictures would do is refused, and so are keys that mean nothing") {
  const Texts texts;
  texts.write("a.txt", forty_characters());
  const std::unique_ptr<OpenedRecipe> data = texts.opened();
  const GivenWeights weights{"w.safetensors", data->make_task({}, Device{})->settings()};
  RunConfig config = texts.config({"vocab_size=5", "positions=4"});
  CHECK(testing::error_of([&] { config.recipe->open_prediction({}, weights); }) ==
        "w.safetensors is a model of a task whose predictions isobar predict does not write");
  CHECK(testing::error_of([&] { config.recipe->open_split(DataSplit::test, weights); }) ==
        "there is no test set: name one by the config key test_text_path");
  CHECK(testing::error_of([&] {
          config.recipe->open_split(DataSplit::valid, {"n.safetensors", {}});
        }) == "n.safetensors does not say what text it was trained on");
  CHECK(config.recipe->open_split(DataSplit::train, weights)->note() ==
        "judged: the first 90 % of " + texts.file("a.txt"));
  CHECK(config.recipe->open_split(DataSplit::valid, weights)->note() ==
        "judged: the last 10 % of " + texts.file("a.txt") + " (valid_fraction); all of it: --set valid_text_path=FILE");
  RunConfig own = texts.config({"vocab_size=5", "positions=4", "valid_text_path=v.txt"});
  CHECK(own.recipe->open_split(DataSplit::train, weights)->note() ==
        "judged: the first 100 % of " + texts.file("a.txt"));

  const auto refused = [&](const std::vector<std::string>& keys) {
    return testing::error_of([&] {
      RunConfig wrong = texts.config(keys);
      wrong.check();
    });
  };
  CHECK(refused({"vocab_size=5", "positions=4"}).empty());
  CHECK(refused({"vocab_size=5", "positions=4", "tokenizer_model=t.json"}) ==
        "config key tokenizer_model in --set means nothing here; it is for token files of the tokenizer characters");
  for (const std::string key : {"eod_mask_loss", "reset_position_ids", "reset_attention_mask"})
    CHECK(refused({"vocab_size=5", "positions=4", key + "=true"}) ==
          "config key " + key + " in --set needs token files; a text has no documents");
  CHECK(refused({"positions=4", "tokenizer=numbers"}) ==
        "config key tokenizer in --set numbers needs vocab_size: how many numbers there are, and one more, which ends "
        "a document");
  CHECK(refused({"positions=4", "tokenizer=numbers", "vocab_size=1"}).find("numbers needs vocab_size") !=
        std::string::npos);
  for (const std::string key : {"vocab_file", "merge_file"})
    CHECK(refused({"vocab_size=300", "positions=4", key + "=f"}) ==
          "config key " + key + " in --set means nothing to tokenizer characters");
  for (const std::string key : {"valid_text_path", "test_text_path"})
    CHECK(refused({"vocab_size=300", "positions=4", "tokenizer=bytes", "data_path=p", key + "=t"}) ==
          "config key " + key + " in --set means nothing to token files, which have their own sets");
}

TEST_CASE("language recipe: weights of another tokenizer are refused, and the table of characters travels with them") {
  const Texts texts;
  texts.write("a.txt", forty_characters());
  const std::unique_ptr<OpenedRecipe> data = texts.opened();
  const GivenWeights weights{"w.safetensors", data->make_task({}, Device{})->settings()};
  CHECK_NOTHROW(data->check_start(weights));
  CHECK(weights.settings.size() == 1);
  CHECK(weights.settings.at("isobar.text").find("order") == std::string::npos);  // a text has no order of its own
  const TextInfo info = text_info_from(weights.settings);
  CHECK(info.vocabulary == 5);
  CHECK(tokenizer_of({}, info)->decode(std::vector<std::int32_t>{4, 3}) == "äx");
  TextInfo of_another = info;
  of_another.fingerprint = "0";
  CHECK(testing::error_of([&] { tokenizer_of({}, of_another); }) ==
        "the weights were trained with another tokenizer characters: its fingerprint is 0, not " + info.fingerprint);
  const auto description = [](std::int64_t vocabulary, std::int64_t seq_length) {
    TextInfo some{.vocabulary = vocabulary, .seq_length = seq_length, .tokenizer = "bytes", .fingerprint = "1"};
    some.characters = "c";
    some.trained_on = "t";
    some.order = "2 epochs";
    some.most_samples = 7;
    return text_settings(some);
  };
  const TextInfo again = text_info_from(description(3, 2));
  CHECK(again.seq_length == 2);
  CHECK(again.tokenizer == "bytes");
  CHECK(again.fingerprint == "1");
  CHECK(again.characters == "c");
  CHECK(again.trained_on == "t");
  CHECK(again.order == "2 epochs");
  CHECK(again.most_samples == 7);
  for (const auto& [vocabulary, seq_length] : {std::pair(0, 2), std::pair(3, 0)})
    CHECK(testing::error_of([&] { text_info_from(description(vocabulary, seq_length)); }) ==
          "isobar.text describes no text");
  CHECK(testing::error_of([] {
          text_info_from({{"isobar.text", "{}"}});
        }) == "the description of the text in the metadata is damaged");

  texts.write("a.txt", "abcdabcdabcdabcdabcdabcdabcdabcdabcdabcdx");  // five characters too
  const std::unique_ptr<OpenedRecipe> other = texts.opened();
  const std::string theirs = text_info_from(other->make_task({}, Device{})->settings()).fingerprint;
  for (const bool resumes : {false, true})
    CHECK(testing::error_of([&] { resumes ? other->check_resume(weights) : other->check_start(weights); }) ==
          texts.file("a.txt") + ": its 5 tokens of the tokenizer characters (fingerprint " + theirs +
              ") are not those that w.safetensors was trained on: 5 of characters (" + info.fingerprint + ")");
  CHECK_NOTHROW(other->check_start({"n.safetensors", {}}));  // which say nothing of a text
  CHECK_NOTHROW(other->check_resume({"n.safetensors", {}}));

  texts.write("a.txt", "b" + forty_characters().substr(1));
  const std::unique_ptr<OpenedRecipe> changed = texts.opened();
  CHECK_NOTHROW(changed->check_start(weights));
  CHECK(testing::error_of([&] { changed->check_resume(weights); }) ==
        texts.file("a.txt") + ": this is not the text that w.safetensors was trained on");
  CHECK_NOTHROW(data->check_resume(weights));

  texts.write("a.txt", "abcdabcdabcdabcdabcdabcdabcdabcdabcdabcdx");
  // What these weights are judged by is read with their own table.
  RunConfig config = texts.config({"vocab_size=5", "positions=4"});
  const std::string unknown =
      testing::error_of([&] { config.recipe->open_split(DataSplit::valid, weights)->samples(); });
  CHECK(unknown.find("character U+0064 at byte") != std::string::npos);

  const testing::TemporaryFolder folder;
  data->keep(folder.path());
  CHECK(read_file(folder / "characters.json") == "{\"characters\":\"abcxä\"}\n");
}

}  // namespace isobar
