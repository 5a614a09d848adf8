#include "models/gpt/megatron_weights.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr std::string_view kLayers = "decoder.layers.", kBlocks = "blocks.";
constexpr const char* kStackedLayer = "self_attention.linear_qkv";
constexpr std::array<const char*, 3> kParts{"q", "k", "v"};
constexpr const char* kTable = "embedding.word_embeddings.weight";

using NamePair = std::pair<const char*, const char*>;  // isobar's, Megatron's
constexpr std::array<NamePair, 5> kOfBlock{{{"norm1", "input_layernorm"},
                                            {"norm2", "pre_mlp_layernorm"},
                                            {"attn.proj", "self_attention.linear_proj"},
                                            {"mlp.fc1", "mlp.linear_fc1"},
                                            {"mlp.fc2", "mlp.linear_fc2"}}};
constexpr std::array<NamePair, 4> kOutside{{{"wte", "embedding.word_embeddings"},
                                            {"wpe", "embedding.position_embeddings"},
                                            {"norm", "decoder.final_layernorm"},
                                            {"head", "output_layer"}}};
// Norms that Transformer Engine has within the product behind them.
constexpr std::array<NamePair, 2> kFusedNorms{
    {{"norm1", "self_attention.linear_qkv.layer_norm_"}, {"norm2", "mlp.linear_fc1.layer_norm_"}}};

// "decoder.layers.3.mlp.linear_fc1.weight" -> "3" and "mlp.linear_fc1.weight"; no number: not of a block.
std::pair<std::string, std::string> number_and_place(const std::string& name, std::string_view blocks) {
  if (!name.starts_with(blocks)) return {"", name};
  const std::size_t dot = name.find('.', blocks.size());
  if (dot == std::string::npos) return {"", name};
  return {name.substr(blocks.size(), dot - blocks.size()), name.substr(dot + 1)};
}

std::pair<std::string, std::string> layer_and_leaf(const std::string& place) {
  const std::size_t dot = place.rfind('.');
  return dot == std::string::npos ? std::pair(place, std::string())
                                  : std::pair(place.substr(0, dot), place.substr(dot + 1));
}

void give(OwnedTensors& to, OwnedTensor tensor, const std::string& name) {
  tensor.info.name = name;
  ISOBAR_CHECK(to.emplace(name, std::move(tensor)).second, "two tensors of the file are ", name);
}

// The rows of one part of every head, or back: `copy` gets the places in the stacked tensor and in the part.
template <class Copy>
void for_each_head(const OwnedTensor& stacked, std::int64_t heads, std::size_t part, const Copy& copy) {
  const std::int64_t rows = stacked.info.shape.empty() ? 0 : stacked.info.shape[0];
  ISOBAR_CHECK(heads > 0, "Megatron-LM's rows of queries, keys and values lie by heads, and how many there are is not ",
               "known; --heads says it");
  ISOBAR_CHECK(rows > 0 && rows % (kParts.size() * static_cast<std::size_t>(heads)) == 0, stacked.info.name, ": ", rows,
               " rows are not those of queries, keys and values of ", heads, " heads");
  const std::size_t of_head = stacked.bytes.size() / (kParts.size() * static_cast<std::size_t>(heads));
  for (std::size_t head = 0; head < static_cast<std::size_t>(heads); ++head)
    copy((head * kParts.size() + part) * of_head, head * of_head, of_head);
}

OwnedTensor part_of_stacked(const OwnedTensor& stacked, std::int64_t heads, std::size_t part) {
  OwnedTensor own{stacked.info, std::vector<std::byte>(stacked.bytes.size() / kParts.size())};
  for_each_head(stacked, heads, part, [&](std::size_t there, std::size_t here, std::size_t bytes) {
    std::memcpy(own.bytes.data() + here, stacked.bytes.data() + there, bytes);
  });
  own.info.shape[0] /= static_cast<std::int64_t>(kParts.size());
  return own;
}

OwnedTensor stacked_by_head(const OwnedTensors& weights, const std::string& prefix, const std::string& leaf,
                            std::int64_t heads) {
  OwnedTensor stacked;
  for (std::size_t part = 0; part < kParts.size(); ++part) {
    const auto found = weights.find(prefix + kParts[part] + "." + leaf);
    ISOBAR_CHECK(found != weights.end(), "the weights have no ", prefix, kParts[part], ".", leaf);
    const OwnedTensor& own = found->second;
    if (part == 0) {
      stacked = {own.info, std::vector<std::byte>(own.bytes.size() * kParts.size())};
      stacked.info.shape[0] *= static_cast<std::int64_t>(kParts.size());
    }
    for_each_head(stacked, heads, part, [&](std::size_t there, std::size_t here, std::size_t bytes) {
      std::memcpy(stacked.bytes.data() + there, own.bytes.data() + here, bytes);
    });
  }
  return stacked;
}

// The other name of a pair; null: there is none.
template <std::size_t N>
const char* other_of(const std::array<NamePair, N>& names, const std::string& name, bool from_own) {
  for (const auto& [own, there] : names)
    if (name == (from_own ? own : there)) return from_own ? there : own;
  return nullptr;
}

// Of a block of Megatron's, to isobar's names.
void give_block(OwnedTensors& to, OwnedTensor tensor, const std::string& number, const std::string& place,
                std::int64_t heads) {
  const std::string prefix = concat(kBlocks, number, ".");
  for (const auto& [own, there] : kFusedNorms)
    if (place.starts_with(there))
      return give(to, std::move(tensor), prefix + own + "." + place.substr(std::string_view(there).size()));
  const auto [layer, leaf] = layer_and_leaf(place);
  if (layer == kStackedLayer) {
    for (std::size_t part = 0; part < kParts.size(); ++part)
      give(to, part_of_stacked(tensor, heads, part), prefix + "attn." + kParts[part] + "." + leaf);
    return;
  }
  const char* const own = other_of(kOfBlock, layer, /*from_own=*/false);
  ISOBAR_CHECK(own != nullptr, "a GPT has no tensor ", tensor.info.name);
  give(to, std::move(tensor), prefix + own + "." + leaf);
}

}  // namespace

bool has_megatron_names(const TensorReader& file) {
  return file.find(kTable) != nullptr;
}

bool has_megatron_names(const OwnedTensors& weights) {
  return weights.contains(kTable);
}

OwnedTensors gpt_from_megatron(OwnedTensors weights, std::int64_t heads) {
  OwnedTensors own;
  for (auto& [there, tensor] : weights) {
    if (there.ends_with("_extra_state")) continue;
    const auto [number, place] = number_and_place(there, kLayers);
    if (!number.empty()) {
      give_block(own, std::move(tensor), number, place, heads);
      continue;
    }
    const auto [layer, leaf] = layer_and_leaf(there);
    const char* const name = other_of(kOutside, layer, /*from_own=*/false);
    ISOBAR_CHECK(name != nullptr, "a GPT has no tensor ", there);
    give(own, std::move(tensor), concat(name, ".", leaf));
  }
  return own;
}

OwnedTensors gpt_to_megatron(const OwnedTensors& weights, std::int64_t heads) {
  OwnedTensors other;
  for (const auto& [name, tensor] : weights) {
    const auto [number, place] = number_and_place(name, kBlocks);
    const auto [layer, leaf] = layer_and_leaf(place);
    if (number.empty()) {
      const char* const there = other_of(kOutside, layer, /*from_own=*/true);
      ISOBAR_CHECK(there != nullptr, "a GPT has no tensor ", name);
      give(other, tensor, concat(there, ".", leaf));
      continue;
    }
    const std::string prefix = concat(kLayers, number, ".");
    if (layer == "attn.q") {
      give(other, stacked_by_head(weights, concat(kBlocks, number, ".attn."), leaf, heads),
           prefix + kStackedLayer + "." + leaf);
    } else if (layer != "attn.k" && layer != "attn.v") {
      const char* const there = other_of(kOfBlock, layer, /*from_own=*/true);
      ISOBAR_CHECK(there != nullptr, "a GPT has no tensor ", name);
      give(other, tensor, prefix + there + "." + leaf);
    }
  }
  return other;
}

}  // namespace isobar
