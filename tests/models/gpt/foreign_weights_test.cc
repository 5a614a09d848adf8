// Weights of a GPT under other names: there and back, matrices that are turned, and files that are none.
#include "models/gpt/foreign_weights.h"

#include <algorithm>
#include <cstring>

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
  SafetensorsFile write(const OwnedTensors& weights) const {
    std::vector<TensorBytes> tensors;
    for (const auto& [name, tensor] : weights) tensors.push_back({tensor.info, tensor.bytes});
    write_safetensors(folder_ / "w.safetensors", tensors);
    return SafetensorsFile(folder_ / "w.safetensors");
  }

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
  for (const GptNames names : {GptNames::isobar, GptNames::nanogpt, GptNames::huggingface}) {
    const OwnedTensors there = gpt_from_isobar(small_gpt(), names);
    const SafetensorsFile file = files.write(there);
    CHECK(names_of_gpt(file) == names);
    CHECK(same(gpt_to_isobar(file), small_gpt()));
  }
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
  CHECK(none.find("these are not the weights of a GPT") != std::string::npos);
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
}

}  // namespace isobar
