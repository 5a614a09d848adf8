// Folders of Hugging Face: what is written is read again, and what contradicts the network is refused by key.
#include "models/gpt/huggingface.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/files/huggingface_folder.h"
#include "engine/files/reader.h"
#include "models/gpt/foreign_weights.h"
#include "models/gpt/recipe.h"
#include "models/language/language_model.h"
#include "tests/harness/data_files.h"
#include "tests/harness/error_of.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using nlohmann::json;

GptConfig small() {
  return {.vocabulary = 5,
          .columns = 8,
          .positions = 4,
          .embed = 8,
          .depth = 2,
          .heads = 1,
          .head_size = 8,
          .hidden = 32,
          .gelu = Activation::gelu_erf};
}

class Folder {
 public:
  explicit Folder(const json& config) {
    testing::write_text(folder_ / "config.json", config.dump());
    testing::write_text(folder_ / "model.safetensors", "");
  }
  std::string config() const { return folder_ / "config.json"; }
  std::string refusal(const GptConfig& c) const {
    return testing::error_of([&] { check_huggingface_config(folder_.path(), c); });
  }
  std::filesystem::path path() const { return folder_.path(); }

 private:
  testing::TemporaryFolder folder_;
};

json written(const GptConfig& c) {
  return json::parse(huggingface_config(c, DType::fp64, 4).dump());
}

}  // namespace

TEST_CASE("hugging face: config.json says what the network is, and a network of another kind has no place there") {
  const json config = written(small());
  CHECK(config["model_type"] == "gpt2");
  CHECK(config["vocab_size"] == 5);
  CHECK(config["n_inner"] == 32);
  CHECK(config["activation_function"] == "gelu");
  CHECK(config["eos_token_id"] == 4);
  CHECK(config["bos_token_id"] == 4);
  CHECK(config["architectures"] == json::array({"GPT2LMHeadModel"}));
  CHECK(config["initializer_range"] == small().init_std);
  CHECK(config["n_positions"] == 4);
  CHECK(config["n_embd"] == 8);
  CHECK(config["n_layer"] == 2);
  CHECK(config["n_head"] == 1);
  CHECK(config["torch_dtype"] == "float64");
  for (const auto& [dtype, name] :
       {std::pair(DType::fp32, "float32"), std::pair(DType::bf16, "bfloat16"), std::pair(DType::fp16, "float16")})
    CHECK(huggingface_config(small(), dtype, -1)["torch_dtype"] == name);
  CHECK(huggingface_config(small(), DType::fp32, -1)["eos_token_id"].is_null());
  GptConfig dropped = small();
  dropped.embedding_dropout = 0.1;
  dropped.attention_dropout = 0.2;
  dropped.hidden_dropout = 0.3;
  CHECK(written(dropped)["embd_pdrop"] == 0.1);
  CHECK(written(dropped)["attn_pdrop"] == 0.2);
  CHECK(written(dropped)["resid_pdrop"] == 0.3);
  GptConfig live = small();
  live.pads_count = true;
  live.gelu = Activation::gelu_tanh;
  CHECK(written(live)["vocab_size"] == 8);
  CHECK(written(live)["activation_function"] == "gelu_new");
  GptConfig wide = small();
  wide.head_size = 16;
  CHECK_THROWS_WITH(written(wide),
                    "GPT2LMHeadModel has heads of n_embd / n_head channels: 1 heads of 16 channels at a "
                    "width of 8 have no place there");
}

TEST_CASE("hugging face: a folder of the same network is taken, with the defaults of transformers") {
  CHECK(Folder(written(small())).refusal(small()) == "");
  GptConfig gpt2{.vocabulary = 50257, .columns = 50304, .positions = 1024};
  const json least{{"model_type", "gpt2"}};
  CHECK(Folder(least).refusal(gpt2) == "");
  const json more{{"model_type", "gpt2"}, {"n_inner", nullptr}, {"activation_function", "gelu_pytorch_tanh"}};
  CHECK(Folder(more).refusal(gpt2) == "");
}

TEST_CASE("hugging face: a key that makes another network is named") {
  const auto refusal = [](const char* key, const json& value) {
    json config = written(small());
    config[key] = value;
    const Folder folder(config);
    const std::string message = folder.refusal(small());
    REQUIRE(message.starts_with(folder.config() + ": "));
    return message.substr(folder.config().size() + 2);
  };
  CHECK(refusal("n_head", 2) == "n_head is 2, but num_heads is 1");  // no tensor's shape would show it
  CHECK(refusal("n_layer", 3) == "n_layer is 3, but depth is 2");
  CHECK(refusal("n_embd", 16) == "n_embd is 16, but embed_dim is 8");
  CHECK(refusal("n_inner", 16) == "n_inner is 16, but mlp_hidden is 32");
  CHECK(refusal("n_positions", 5) == "n_positions is 5, but positions is 4");
  CHECK(refusal("vocab_size", 8) ==
        "vocab_size is 8, but the run's config key vocab_size is 5; if the rows beyond are padding that counts, as "
        "Megatron-LM's, start with --set vocab_padding=live");
  CHECK(refusal("vocab_size", 4) == "vocab_size is 4, but the run's config key vocab_size is 5");
  GptConfig live = small();
  live.pads_count = true;
  const Folder masked(written(small()));
  CHECK(masked.refusal(live) ==
        masked.config() + ": vocab_size is 5, but the number of rows of the table, which all count is 8");
  CHECK(Folder(written(live)).refusal(live) == "");
  CHECK(refusal("vocab_size", 5.5) == "vocab_size is 5.5, no whole number above 0");
  CHECK(refusal("layer_norm_epsilon", 1e-6) == "layer_norm_epsilon is 1e-06, but norm_eps is 1e-05");
  CHECK(refusal("tie_word_embeddings", false) == "tie_word_embeddings is false, but tie_head is true");
  CHECK(refusal("activation_function", "gelu_new") == "activation_function is \"gelu_new\", but gelu is erf");
  CHECK(refusal("activation_function", "relu") == "activation_function is \"relu\", but gelu is erf");
  CHECK(refusal("scale_attn_weights", false) == "scale_attn_weights is false, but what isobar does is true");
  CHECK(refusal("scale_attn_by_inverse_layer_idx", true) ==
        "scale_attn_by_inverse_layer_idx is true, but what isobar does is false");
  CHECK(refusal("model_type", "gpt_neox") ==
        "model_type is \"gpt_neox\", but the model that this network reads is \"gpt2\"");
}

TEST_CASE("hugging face: a folder's keys are those of a run's config, with the defaults of transformers") {
  const auto keys_of = [](const json& config) {
    const Folder folder(config);
    for (const char* name : {"vocab.json", "merges.txt"}) testing::write_text(folder.path() / name, "");
    return json::parse(keys_of_huggingface(folder.path()).dump());
  };
  const json usual = keys_of({{"model_type", "gpt2"}});
  const json expected{{"task", "language_model"}, {"model", "gpt"},     {"embed_dim", 768},    {"depth", 12},
                      {"num_heads", 12},          {"mlp_hidden", 3072}, {"positions", 1024},   {"gelu", "tanh"},
                      {"norm_eps", 1e-5},         {"tie_head", true},   {"vocab_size", 50257}, {"seq_length", 1024},
                      {"tokenizer", "gpt2_bpe"}};
  for (const auto& [key, value] : expected.items()) {
    INFO(key);
    CHECK(usual.at(key) == value);
  }
  CHECK(usual.size() == expected.size() + 2);  // and the tokenizer's files
  CHECK(usual["vocab_file"].get<std::string>().ends_with("/vocab.json"));
  CHECK(usual["merge_file"].get<std::string>().ends_with("/merges.txt"));
  const json own = keys_of(written(small()));
  CHECK(own["mlp_hidden"] == 32);
  CHECK(own["gelu"] == "erf");
  CHECK(keys_of({{"model_type", "gpt2"}, {"n_embd", 10}})["mlp_hidden"] == 40);
  CHECK(keys_of({{"model_type", "gpt2"}, {"activation_function", "gelu_fast"}})["gelu"] == "tanh");

  const auto refused = [](const json& config, const std::string& why) {
    const Folder folder(config);
    CHECK(testing::error_of([&] { keys_of_huggingface(folder.path()); }) == folder.config() + why);
  };
  refused(json::array({1}), " is no config of a model");
  refused({{"model_type", "gpt2"}, {"activation_function", "relu"}},
          ": activation_function is \"relu\"; isobar's GPT has the GELU alone");
  const auto refused_with_files = [](const char* key, const json& value, const std::string& why) {
    const Folder folder({{"model_type", "gpt2"}, {key, value}});
    for (const char* name : {"vocab.json", "merges.txt"}) testing::write_text(folder.path() / name, "");
    CHECK(testing::error_of([&] { keys_of_huggingface(folder.path()); }) == folder.config() + ": " + why);
  };
  for (const char* key : {"n_embd", "n_layer", "n_head", "n_inner", "n_positions", "vocab_size"}) {
    refused_with_files(key, 0, std::string(key) + " is 0, no whole number above 0");
    refused_with_files(key, 1.5, std::string(key) + " is 1.5, no whole number above 0");
  }
  refused_with_files("layer_norm_epsilon", "small", "layer_norm_epsilon is \"small\", no number");
  refused_with_files("tie_word_embeddings", 1, "tie_word_embeddings is 1, neither true nor false");
  for (const char* lacking : {"vocab.json", "merges.txt"}) {
    const Folder folder(json{{"model_type", "gpt2"}});
    for (const char* name : {"vocab.json", "merges.txt"})
      if (std::string(name) != lacking) testing::write_text(folder.path() / name, "");
    CHECK(testing::error_of([&] { keys_of_huggingface(folder.path()); }) ==
          folder.path().string() + " has no " + lacking + ", of GPT-2's tokenizer");
  }
}

TEST_CASE("hugging face: the tokenizer's files are copied, and described") {
  const testing::TemporaryFolder from, to;
  testing::write_text(from / "v", "the vocabulary");
  testing::write_text(from / "m", "the merges");
  write_huggingface_tokenizer(to.path(), from / "v", from / "m", "<|endoftext|>", 1024);
  CHECK(read_file(to / "vocab.json") == "the vocabulary");
  CHECK(read_file(to / "merges.txt") == "the merges");
  CHECK(json::parse(read_file(to / "tokenizer_config.json")) == json{{"tokenizer_class", "GPT2Tokenizer"},
                                                                     {"bos_token", "<|endoftext|>"},
                                                                     {"eos_token", "<|endoftext|>"},
                                                                     {"unk_token", "<|endoftext|>"},
                                                                     {"add_prefix_space", false},
                                                                     {"model_max_length", 1024}});
}

TEST_CASE("hugging face: a folder is one that has config.json and weights") {
  const Folder folder(written(small()));
  CHECK(is_huggingface_folder(folder.path()));
  CHECK_FALSE(is_huggingface_folder(folder.config()));
  std::filesystem::remove(folder.path() / "model.safetensors");
  CHECK_FALSE(is_huggingface_folder(folder.path()));
}

TEST_CASE("hugging face: a network reads foreign files as its own, and rows that they lack are zero") {
  const testing::TemporaryFolder folder;
  const auto recipe = std::make_shared<GptRecipe>(
      GptOptions{.embed_dim = 8, .depth = 1, .num_heads = 1, .positions = 4, .vocab_multiple = 8});
  const LanguageModel model(recipe, {}, {.vocabulary = 5, .seq_length = 4}, Device{});
  const std::filesystem::path file = folder / "hf.safetensors";
  OwnedTensors own;
  for (const NamedParameter& p : model.parameters().named()) {
    OwnedTensor tensor{{.name = p.name, .dtype = DType::fp32, .shape = p.full_shape}, {}};
    tensor.bytes.resize(bytes_of(tensor.info), std::byte{0x3f});
    own[p.name] = std::move(tensor);
  }
  set_vocabulary_rows(own, 5);
  const OwnedTensors there = gpt_from_isobar(own, GptNames::huggingface);
  std::vector<TensorBytes> tensors;
  for (const auto& [name, tensor] : there) tensors.push_back({tensor.info, tensor.bytes});
  write_safetensors(file, tensors);
  const std::unique_ptr<TensorReader> reader = model.open_weights(file);
  CHECK(reader->tensors().size() == own.size());
  const TensorInfo* table = reader->find("wte.weight");
  REQUIRE(table != nullptr);
  CHECK(table->shape == std::vector<std::int64_t>{8, 8});
  std::vector<float> rows(64);
  reader->read(*table, 0, 64, DType::fp32, reinterpret_cast<std::byte*>(rows.data()));
  CHECK(rows[39] != 0);
  CHECK(rows[40] == 0);
  CHECK(rows[63] == 0);
  const auto smaller = std::make_shared<GptRecipe>(
      GptOptions{.embed_dim = 8, .depth = 1, .num_heads = 1, .positions = 4, .vocab_multiple = 1});
  const LanguageModel few(smaller, {}, {.vocabulary = 4, .seq_length = 4}, Device{});
  CHECK(testing::error_of([&] { few.open_weights(file); }) ==
        file.string() +
            ": the table of tokens has 5 rows, more than the 4 of the network; isobar weights convert "
            "--rows cuts them");
}

}  // namespace isobar
