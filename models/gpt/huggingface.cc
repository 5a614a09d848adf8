#include "models/gpt/huggingface.h"

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "engine/files/atomic_file.h"
#include "engine/files/huggingface_folder.h"
#include "engine/files/json.h"
#include "engine/files/reader.h"
#include "kernels/common/check.h"

namespace isobar {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

// The words of config.json for the two forms; the first is the one that is written.
constexpr std::array<const char*, 3> kTanhForms{"gelu_new", "gelu_pytorch_tanh", "gelu_fast"};
constexpr std::array<const char*, 1> kErfForms{"gelu"};

constexpr const char* kTokenizerVocabulary = "vocab.json";
constexpr const char* kTokenizerMerges = "merges.txt";

std::string name_in_torch(DType dtype) {
  switch (dtype) {
    case DType::fp64:
      return "float64";
    case DType::bf16:
      return "bfloat16";
    case DType::fp16:
      return "float16";
    default:
      return "float32";
  }
}

// Compares the keys of a config.json with what a network is.
class ConfigOfHub {
 public:
  explicit ConfigOfHub(const fs::path& folder)
      : file_((folder / kHuggingFaceConfig).string()), json_(read_json<json>(file_)) {
    ISOBAR_CHECK(json_.is_object(), file_, " is no config of a model");
  }

  // usual: of GPT2Config, where the key is absent.
  template <class T>
  void expect(const char* key, const T& usual, const T& own, const char* own_name) const {
    const json found = value(key, usual);
    ISOBAR_CHECK(found == json(own), file_, ": ", key, " is ", shown(found), ", but ", own_name, " is ",
                 shown(json(own)));
  }
  json value(const char* key, const json& usual) const {
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? usual : *found;
  }
  // A whole number above 0, a number, a truth.
  std::int64_t count(const char* key, const json& usual) const {
    const json found = value(key, usual);
    ISOBAR_CHECK(found.is_number_integer() && found.get<std::int64_t>() > 0, file_, ": ", key, " is ", shown(found),
                 ", no whole number above 0");
    return found.get<std::int64_t>();
  }
  double number(const char* key, double usual) const {
    const json found = value(key, usual);
    ISOBAR_CHECK(found.is_number(), file_, ": ", key, " is ", shown(found), ", no number");
    return found.get<double>();
  }
  bool truth(const char* key, bool usual) const {
    const json found = value(key, usual);
    ISOBAR_CHECK(found.is_boolean(), file_, ": ", key, " is ", shown(found), ", neither true nor false");
    return found.get<bool>();
  }
  const std::string& file() const { return file_; }

 private:
  std::string file_;
  json json_;
};

bool is_form(const json& word, std::span<const char* const> forms) {
  for (const char* form : forms)
    if (word == form) return true;
  return false;
}

// Error for what no GPT of isobar computes.
void check_kind(const ConfigOfHub& hub) {
  hub.expect<std::string>("model_type", "", "gpt2", "the model that this network reads");
  hub.expect<bool>("scale_attn_weights", true, true, "what isobar does");
  hub.expect<bool>("scale_attn_by_inverse_layer_idx", false, false, "what isobar does");
}

// As exported: the tokens, or where padding counts the rows of the table.
void check_vocabulary(const ConfigOfHub& hub, const GptConfig& c) {
  if (c.pads_count)
    return hub.expect<std::int64_t>("vocab_size", 50257, c.columns, "the number of rows of the table, which all count");
  const std::int64_t theirs = hub.count("vocab_size", 50257);
  ISOBAR_CHECK(theirs == c.vocabulary, hub.file(), ": vocab_size is ", theirs,
               ", but the run's config key vocab_size is ", c.vocabulary,
               theirs <= c.vocabulary
                   ? ""
                   : "; if the rows beyond are padding that counts, as Megatron-LM's, start with --set "
                     "vocab_padding=live");
}

}  // namespace

nlohmann::ordered_json huggingface_config(const GptConfig& c, DType dtype, std::int32_t eod) {
  ISOBAR_CHECK(c.heads * c.head_size == c.embed, "GPT2LMHeadModel has heads of n_embd / n_head channels: ", c.heads,
               " heads of ", c.head_size, " channels at a width of ", c.embed, " have no place there");
  const nlohmann::ordered_json end = eod < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(eod);
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"vocab_size", c.pads_count ? c.columns : c.vocabulary},
          {"n_positions", c.positions},
          {"n_embd", c.embed},
          {"n_layer", c.depth},
          {"n_head", c.heads},
          {"n_inner", c.hidden},
          {"activation_function", c.gelu == Activation::gelu_tanh ? kTanhForms[0] : kErfForms[0]},
          {"layer_norm_epsilon", c.norm_eps},
          {"initializer_range", c.init_std},
          {"embd_pdrop", c.embedding_dropout},
          {"attn_pdrop", c.attention_dropout},
          {"resid_pdrop", c.hidden_dropout},
          {"scale_attn_weights", true},
          {"tie_word_embeddings", c.tie_head},
          {"bos_token_id", end},
          {"eos_token_id", end},
          {"torch_dtype", name_in_torch(dtype)}};
}

void check_huggingface_config(const fs::path& folder, const GptConfig& c) {
  const ConfigOfHub hub(folder);
  check_kind(hub);
  hub.expect<std::int64_t>("n_embd", 768, c.embed, "embed_dim");
  hub.expect<std::int64_t>("n_layer", 12, c.depth, "depth");
  hub.expect<std::int64_t>("n_head", 12, c.heads, "num_heads");
  hub.expect<std::int64_t>("n_inner", 4 * c.embed, c.hidden, "mlp_hidden");
  hub.expect<std::int64_t>("n_positions", 1024, c.positions, "positions");
  check_vocabulary(hub, c);
  hub.expect<double>("layer_norm_epsilon", 1e-5, c.norm_eps, "norm_eps");
  hub.expect<bool>("tie_word_embeddings", true, c.tie_head, "tie_head");
  const bool is_tanh = c.gelu == Activation::gelu_tanh;
  const json form = hub.value("activation_function", kTanhForms[0]);
  ISOBAR_CHECK(is_tanh ? is_form(form, kTanhForms) : is_form(form, kErfForms), hub.file(), ": activation_function is ",
               shown(form), ", but gelu is ", is_tanh ? "tanh" : "erf");
}

nlohmann::ordered_json keys_of_huggingface(const fs::path& folder) {
  const ConfigOfHub hub(folder);
  check_kind(hub);
  const json form = hub.value("activation_function", kTanhForms[0]);
  const bool is_tanh = is_form(form, kTanhForms);
  ISOBAR_CHECK(is_tanh || is_form(form, kErfForms), hub.file(), ": activation_function is ", shown(form),
               "; isobar's GPT has the GELU alone");
  for (const char* name : {kTokenizerVocabulary, kTokenizerMerges})
    ISOBAR_CHECK(fs::exists(folder / name), folder.string(), " has no ", name, ", of GPT-2's tokenizer");
  const std::int64_t width = hub.count("n_embd", 768), positions = hub.count("n_positions", 1024);
  return {{"task", "language_model"},
          {"model", "gpt"},
          {"embed_dim", width},
          {"depth", hub.count("n_layer", 12)},
          {"num_heads", hub.count("n_head", 12)},
          {"mlp_hidden", hub.count("n_inner", 4 * width)},
          {"positions", positions},
          {"gelu", is_tanh ? "tanh" : "erf"},
          {"norm_eps", hub.number("layer_norm_epsilon", 1e-5)},
          {"tie_head", hub.truth("tie_word_embeddings", true)},
          {"vocab_size", hub.count("vocab_size", 50257)},
          {"seq_length", positions},
          {"tokenizer", "gpt2_bpe"},
          {"vocab_file", (folder / kTokenizerVocabulary).string()},
          {"merge_file", (folder / kTokenizerMerges).string()}};
}

void write_huggingface_tokenizer(const fs::path& folder, const std::string& vocab_file, const std::string& merge_file,
                                 const std::string& eod, std::int64_t positions) {
  write_file_atomically(folder / kTokenizerVocabulary, read_file(vocab_file));
  write_file_atomically(folder / kTokenizerMerges, read_file(merge_file));
  const nlohmann::ordered_json described{{"tokenizer_class", "GPT2Tokenizer"},
                                         {"bos_token", eod},
                                         {"eos_token", eod},
                                         {"unk_token", eod},
                                         {"add_prefix_space", false},
                                         {"model_max_length", positions}};
  write_file_atomically(folder / "tokenizer_config.json", described.dump(2) + "\n");
}

}  // namespace isobar
