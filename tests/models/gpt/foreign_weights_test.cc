// Weights of a GPT under other names: there and back, matrices that are turned, and files that are none.
#include "models/gpt/foreign_weights.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "engine/files/huggingface_folder.h"
#include "tests/harness/data_files.h"
#include "tests/harness/error_of.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

OwnedTensor tensor_named(const std::string& name, const std::vector<std::int64_t>& shape, float first) {
  OwnedTensor tensor{{.name = name, .dtype = DType::fp32, .shape = shape}, {}};
  std::vector<float> values(static_cast<std::size_t>(elements_of(tensor.info)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i);
  tensor.bytes.resize(values.size() * sizeof(float));
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

// A block of 2 channels and 3 hidden ones.
OwnedTensors small_gpt() {
  OwnedTensors all;
  float first = 0;
  const auto give = [&](const std::string& name, const std::vector<std::int64_t>& shape) {
    all[name] = tensor_named(name, shape, first += 100);
  };
  for (const char* part : {"q", "k", "v", "proj"}) {
    give(concat("blocks.0.attn.", part, ".weight"), {2, 2});
    give(concat("blocks.0.attn.", part, ".bias"), {2});
  }
  give("blocks.0.mlp.fc1.weight", {3, 2});
  give("blocks.0.mlp.fc2.weight", {2, 3});
  for (const char* norm : {"blocks.0.norm1", "blocks.0.norm2", "norm"}) give(concat(norm, ".weight"), {2});
  give("wte.weight", {5, 2});
  give("wpe.weight", {4, 2});
  return all;
}

class Files {
 public:
  ForeignWeights write(const OwnedTensors& weights) const {
    write_file("w.safetensors", weights);
    return read_foreign_weights(folder_ / "w.safetensors");
  }
  void write_file(const std::string& name, const OwnedTensors& weights) const {
    std::vector<TensorBytes> tensors;
    for (const auto& [key, tensor] : weights) tensors.push_back({tensor.info, tensor.bytes});
    write_safetensors(folder_ / name, tensors);
  }
  const testing::TemporaryFolder& folder() const { return folder_; }

 private:
  testing::TemporaryFolder folder_;
};

std::vector<float> values_of(const OwnedTensor& tensor) {
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

bool same(const OwnedTensors& a, const OwnedTensors& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.info.shape == y.second.info.shape && x.second.bytes == y.second.bytes;
  });
}

}  // namespace

TEST_CASE("foreign weights: there and back are the same bytes, and the file says whose names it has") {
  const Files files;
  for (const GptNames names : {GptNames::isobar, GptNames::nanogpt, GptNames::huggingface, GptNames::megatron}) {
    for (const std::int64_t heads : {1, 2}) {
      const OwnedTensors there = gpt_from_isobar(small_gpt(), names, heads);
      const ForeignWeights file = files.write(there);
      CHECK(names_of_gpt(file) == names);
      CHECK(same(gpt_to_isobar(file, heads), small_gpt()));
    }
  }
}

TEST_CASE("foreign weights: Megatron-LM's core has the rows of each head together") {
  const Files files;
  const OwnedTensors own = small_gpt();
  OwnedTensors core = gpt_from_isobar(own, GptNames::megatron, 2);
  const OwnedTensor& rows = core.at("decoder.layers.0.self_attention.linear_qkv.weight");
  CHECK(rows.info.shape == std::vector<std::int64_t>{6, 2});
  CHECK(values_of(rows) == std::vector<float>{100, 101, 300, 301, 500, 501, 102, 103, 302, 303, 502, 503});
  CHECK(values_of(core.at("decoder.layers.0.self_attention.linear_qkv.bias")) ==
        std::vector<float>{200, 400, 600, 201, 401, 601});
  CHECK(values_of(core.at("decoder.layers.0.mlp.linear_fc1.weight")) == values_of(own.at("blocks.0.mlp.fc1.weight")));
  // Transformer Engine has norms within the product behind them, and states that are no weights.
  const auto rename = [&](const std::string& one, const std::string& other) {
    auto node = core.extract("decoder.layers.0." + one);
    node.key() = "decoder.layers.0." + other;
    node.mapped().info.name = node.key();
    core.insert(std::move(node));
  };
  rename("input_layernorm.weight", "self_attention.linear_qkv.layer_norm_weight");
  rename("pre_mlp_layernorm.weight", "mlp.linear_fc1.layer_norm_weight");
  const std::string state = "decoder.layers.0.mlp.linear_fc1._extra_state";
  core[state] = tensor_named(state, {1}, 0);
  CHECK(same(gpt_to_isobar(files.write(core), 2), own));
  CHECK(
      testing::error_of([&] { gpt_to_isobar(files.write(core)); }) ==
      "Megatron-LM's rows of queries, keys and values lie by heads, and how many there are is not known; --heads says "
      "it");
  CHECK_THAT(testing::error_of([&] { gpt_to_isobar(files.write(core), 4); }),
             testing::ContainsSubstring("6 rows are not those of queries, keys and values of 4 heads"));
}

TEST_CASE("foreign weights: parts that lack, that are there twice or have no such form are named") {
  const Files files;
  for (const char* part : {"q", "k", "v"}) {
    OwnedTensors lacking = small_gpt();
    lacking.erase(concat("blocks.0.attn.", part, ".bias"));
    for (const GptNames names : {GptNames::nanogpt, GptNames::huggingface, GptNames::megatron}) {
      const std::string refusal = testing::error_of([&] { gpt_from_isobar(lacking, names, 1); });
      CHECK(refusal == (std::string(part) == "q" ? "the weights have blocks.0.attn.k.bias, but no blocks.0.attn.q.bias"
                                                 : concat("the weights have no blocks.0.attn.", part, ".bias")));
    }
  }
  const auto refused = [&](GptNames names, const std::string& name, const OwnedTensor& tensor, const std::string& why) {
    OwnedTensors there = gpt_from_isobar(small_gpt(), names, 1);
    there[name] = tensor;
    there[name].info.name = name;
    CHECK(testing::error_of([&] { gpt_to_isobar(files.write(there), 1); }) == why);
  };
  refused(GptNames::nanogpt, "wte.weight", tensor_named("", {5, 2}, 0), "two tensors of the file are wte.weight");
  refused(GptNames::huggingface, "transformer.h.0.mlp.c_fc.weight", tensor_named("", {6}, 0),
          "transformer.h.0.mlp.c_fc.weight has 1 axes, not 2");
  refused(GptNames::nanogpt, "transformer.h.1.attn.c_attn.weight", tensor_named("", {4, 2}, 0),
          "transformer.h.1.attn.c_attn.weight: 4 rows are not those of queries, keys and values");
  refused(GptNames::nanogpt, "transformer.rotary.weight", tensor_named("", {2}, 0),
          (files.folder() / "w.safetensors").string() + ": a GPT has no tensor transformer.rotary.weight");
  refused(GptNames::megatron, "decoder.layers.0.mlp.rotary.weight", tensor_named("", {2}, 0),
          "a GPT has no tensor decoder.layers.0.mlp.rotary.weight");
}

TEST_CASE("foreign weights: nanoGPT stacks queries, keys and values, and Hugging Face turns matrices too") {
  const OwnedTensors own = small_gpt();
  const OwnedTensors nano = gpt_from_isobar(own, GptNames::nanogpt);
  const OwnedTensor& rows = nano.at("transformer.h.0.attn.c_attn.weight");
  CHECK(rows.info.shape == std::vector<std::int64_t>{6, 2});
  CHECK(values_of(rows) == std::vector<float>{100, 101, 102, 103, 300, 301, 302, 303, 500, 501, 502, 503});
  CHECK(values_of(nano.at("transformer.h.0.attn.c_attn.bias")) == std::vector<float>{200, 201, 400, 401, 600, 601});

  const OwnedTensors hf = gpt_from_isobar(own, GptNames::huggingface);
  const OwnedTensor& cols = hf.at("transformer.h.0.attn.c_attn.weight");
  CHECK(cols.info.shape == std::vector<std::int64_t>{2, 6});
  CHECK(values_of(cols) == std::vector<float>{100, 102, 300, 302, 500, 502, 101, 103, 301, 303, 501, 503});
  CHECK(hf.at("transformer.h.0.mlp.c_fc.weight").info.shape == std::vector<std::int64_t>{2, 3});
  // A square one, which would load without a word.
  CHECK(values_of(hf.at("transformer.h.0.attn.c_proj.weight")) == std::vector<float>{700, 702, 701, 703});
  CHECK(values_of(hf.at("transformer.wte.weight")) == values_of(own.at("wte.weight")));
}

TEST_CASE("foreign weights: matrices of every type and size are turned, each number to its place") {
  constexpr std::int64_t kRows = 70, kCols = 33;  // neither is a multiple of a square that is turned at once
  for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16, DType::fp16}) {
    const std::size_t size = size_of(dtype);
    OwnedTensor fc1{{.name = "blocks.0.mlp.fc1.weight", .dtype = dtype, .shape = {kRows, kCols}}, {}};
    for (std::uint64_t i = 0; i < kRows * kCols; ++i) {
      const auto* const bytes = reinterpret_cast<const std::byte*>(&i);
      fc1.bytes.insert(fc1.bytes.end(), bytes, bytes + size);
    }
    const OwnedTensors there = gpt_from_isobar({{fc1.info.name, fc1}}, GptNames::huggingface, 1);
    const OwnedTensor& turned = there.at("transformer.h.0.mlp.c_fc.weight");
    CHECK(turned.info.shape == std::vector<std::int64_t>{kCols, kRows});
    REQUIRE(turned.bytes.size() == fc1.bytes.size());
    std::size_t wrong = 0;
    for (std::uint64_t row = 0; row < kRows; ++row)
      for (std::uint64_t col = 0; col < kCols; ++col) {
        std::uint64_t number = 0;
        std::memcpy(&number, turned.bytes.data() + (col * kRows + row) * size, size);
        wrong += number == row * kCols + col ? 0 : 1;
      }
    CHECK(wrong == 0);
  }
  OwnedTensors integers;
  integers["blocks.0.mlp.fc1.weight"] = tensor_named("blocks.0.mlp.fc1.weight", {2, 2, 1}, 0);
  CHECK(testing::error_of([&] { gpt_from_isobar(integers, GptNames::huggingface, 1); }) ==
        "blocks.0.mlp.fc1.weight has 3 axes, not 2");
}

TEST_CASE("foreign weights: files without a prefix, with masks, and with a copy of the tied head") {
  const Files files;
  OwnedTensors hub;
  for (const auto& [name, tensor] : gpt_from_isobar(small_gpt(), GptNames::huggingface)) {
    const std::string bare = name.substr(std::string("transformer.").size());
    hub[bare] = tensor;
    hub[bare].info.name = bare;
  }
  hub["h.0.attn.bias"] = tensor_named("h.0.attn.bias", {1, 1, 2, 2}, 0);
  hub["lm_head.weight"] = hub.at("wte.weight");
  hub["lm_head.weight"].info.name = "lm_head.weight";
  CHECK(same(gpt_to_isobar(files.write(hub)), small_gpt()));

  hub["lm_head.weight"] = tensor_named("lm_head.weight", {5, 2}, 7);  // a head of its own
  CHECK(gpt_to_isobar(files.write(hub)).contains("head.weight"));
  hub["h.0.attn.rotary"] = tensor_named("h.0.attn.rotary", {2}, 0);
  CHECK(testing::error_of([&] { gpt_to_isobar(files.write(hub)); }) == "a GPT has no tensor h.0.attn.rotary");
}

TEST_CASE("foreign weights: what is no GPT is refused, and rows of the table are cut or added") {
  const Files files;
  const std::string none = testing::error_of([&] { names_of_gpt(files.write({{"x", tensor_named("x", {2}, 0)}})); });
  CHECK(none == (files.folder() / "w.safetensors").string() +
                    ": these are not the weights of a GPT under the names of isobar, nanoGPT, Hugging Face or "
                    "Megatron-LM's core");
  const char* attention = "transformer.h.0.attn.c_attn.weight";
  const std::string odd = testing::error_of([&] {
    names_of_gpt(files.write({{attention, tensor_named(attention, {4, 2}, 0)}}));
  });
  CHECK(odd.find("is 4 x 2; one side must be three times the other") != std::string::npos);

  OwnedTensors weights = small_gpt();
  set_vocabulary_rows(weights, 6);
  const std::vector<float> longer = values_of(weights.at("wte.weight"));
  CHECK(longer.size() == 12);
  CHECK(longer.back() == 0);
  set_vocabulary_rows(weights, 5);
  CHECK(same(weights, small_gpt()));

  OwnedTensors flat;
  flat["wte.weight"] = tensor_named("wte.weight", {5}, 0);
  CHECK(testing::error_of([&] { set_vocabulary_rows(flat, 6); }) == "wte.weight is not a table of tokens");
  weights["head.weight"] = weights.at("wte.weight");  // a head of its own has as many
  set_vocabulary_rows(weights, 6);
  CHECK(weights.at("head.weight").info.shape[0] == 6);
  CHECK(values_of(weights.at("head.weight")) == longer);
}

TEST_CASE("foreign weights: a folder's parts are read together, and an index that names none is refused") {
  const Files files;
  const OwnedTensors hf = gpt_from_isobar(small_gpt(), GptNames::huggingface);
  OwnedTensors first, second;
  nlohmann::json map;
  for (const auto& [name, tensor] : hf) {
    const bool is_first = first.size() < hf.size() / 2;
    (is_first ? first : second)[name] = tensor;
    map[name] = is_first ? "a.safetensors" : "b.safetensors";
  }
  files.write_file("a.safetensors", first);
  files.write_file("b.safetensors", second);
  const std::string index = files.folder() / "model.safetensors.index.json";
  const auto read = [&](const nlohmann::json& json) {
    testing::write_text(index, json.dump());
    return gpt_to_isobar(read_foreign_weights(files.folder().path()));
  };
  CHECK(same(read({{"weight_map", map}}), small_gpt()));
  CHECK_FALSE(is_huggingface_folder(files.folder().path()));
  testing::write_text(files.folder() / "config.json", "{}");
  CHECK(is_huggingface_folder(files.folder().path()));
  CHECK(testing::error_of([&] {
          read({{"weight_map", nlohmann::json::object()}});
        }) == index + " names no files of weights");
  CHECK(testing::error_of([&] {
          read({{"weight_map", {{"x", "../a.safetensors"}}}});
        }) == index + ": the file of x is \"../a.safetensors\", which is no file's name");
  files.write_file("b.safetensors", hf);
  CHECK(testing::error_of([&] {
          read({{"weight_map", map}});
        }).starts_with("two tensors of the file are transformer."));
}

TEST_CASE("foreign weights: zero biases stand for those that a network does not have") {
  OwnedTensors weights = small_gpt();
  add_zero_biases(weights);
  for (const char* layer : {"norm", "blocks.0.norm1", "blocks.0.norm2", "blocks.0.mlp.fc1", "blocks.0.mlp.fc2"}) {
    INFO(layer);
    const OwnedTensor& bias = weights.at(std::string(layer) + ".bias");
    CHECK(bias.info.shape[0] == weights.at(std::string(layer) + ".weight").info.shape[0]);
    CHECK(std::ranges::all_of(values_of(bias), [](float value) { return value == 0; }));
  }
  CHECK(values_of(weights.at("blocks.0.attn.q.bias")) == values_of(small_gpt().at("blocks.0.attn.q.bias")));
  CHECK_FALSE(weights.contains("wte.bias"));
  CHECK_FALSE(weights.contains("wpe.bias"));
}

TEST_CASE("foreign weights: tensors in memory are read as those of a file") {
  const OwnedTensorReader reader("somewhere", small_gpt());
  const TensorInfo* table = reader.find("wte.weight");
  REQUIRE(table != nullptr);
  CHECK(reader.find("x") == nullptr);
  CHECK(reader.tensors().size() == small_gpt().size());
  std::vector<double> three(3);
  reader.read(*table, 4, 3, DType::fp64, reinterpret_cast<std::byte*>(three.data()));
  const std::vector<float> all = values_of(small_gpt().at("wte.weight"));
  CHECK(three == std::vector<double>{all[4], all[5], all[6]});
}

}  // namespace isobar
