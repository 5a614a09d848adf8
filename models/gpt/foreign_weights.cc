#include "models/gpt/foreign_weights.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "engine/files/huggingface_folder.h"
#include "kernels/common/check.h"
#include "kernels/cpu/parallel.h"
#include "models/gpt/megatron_weights.h"

namespace isobar {
namespace {

constexpr std::string_view kPrefix = "transformer.";
constexpr std::array<const char*, 3> kStacked{"q", "k", "v"};

// A layer of a block and its name elsewhere; is_matrix: Hugging Face has it [in, out].
struct LayerName {
  const char* own;
  const char* foreign;
  bool is_matrix;
};
constexpr std::array<LayerName, 5> kLayersOfBlock{{{"norm1", "ln_1", false},
                                                   {"norm2", "ln_2", false},
                                                   {"attn.proj", "attn.c_proj", true},
                                                   {"mlp.fc1", "mlp.c_fc", true},
                                                   {"mlp.fc2", "mlp.c_proj", true}}};

// Rows [first, end) of `to`, the transpose of `from` [rows, cols], of elements of kSize bytes. In squares, so that the
// lines of both stay in the cache until they are used up.
template <std::size_t kSize>
void transpose_rows(const std::byte* from, std::byte* to, std::size_t rows, std::size_t cols, std::size_t first,
                    std::size_t end) {
  constexpr std::size_t kSquare = 32;
  for (std::size_t c0 = first; c0 < end; c0 += kSquare)
    for (std::size_t r0 = 0; r0 < rows; r0 += kSquare)
      for (std::size_t c = c0; c < std::min(c0 + kSquare, end); ++c)
        for (std::size_t r = r0; r < std::min(r0 + kSquare, rows); ++r)
          std::memcpy(to + (c * rows + r) * kSize, from + (r * cols + c) * kSize, kSize);
}

OwnedTensor transposed(const OwnedTensor& from) {
  ISOBAR_CHECK(from.info.shape.size() == 2, from.info.name, " has ", from.info.shape.size(), " axes, not 2");
  const auto rows = static_cast<std::size_t>(from.info.shape[0]), cols = static_cast<std::size_t>(from.info.shape[1]);
  OwnedTensor to{from.info, std::vector<std::byte>(from.bytes.size())};
  std::swap(to.info.shape[0], to.info.shape[1]);
  const auto transpose = [&]<std::size_t kSize>(std::integral_constant<std::size_t, kSize>) {
    const std::int64_t grain = kGrain / static_cast<std::int64_t>(rows + 1) + 1;
    parallel_for(static_cast<std::int64_t>(cols), grain, [&](std::int64_t first, std::int64_t end) {
      transpose_rows<kSize>(from.bytes.data(), to.bytes.data(), rows, cols, static_cast<std::size_t>(first),
                            static_cast<std::size_t>(end));
    });
  };
  switch (size_of(from.info.dtype)) {
    case 2:
      transpose(std::integral_constant<std::size_t, 2>());
      break;
    case 4:
      transpose(std::integral_constant<std::size_t, 4>());
      break;
    case 8:
      transpose(std::integral_constant<std::size_t, 8>());
      break;
    default:
      throw_error(from.info.name, " has elements of ", size_of(from.info.dtype), " bytes");
  }
  return to;
}

// Rows [part·n/3, (part + 1)·n/3) of a tensor of n rows.
OwnedTensor third_of_rows(const OwnedTensor& from, std::size_t part, const std::string& name) {
  ISOBAR_CHECK(!from.info.shape.empty() && from.info.shape[0] % 3 == 0, from.info.name, ": ",
               from.info.shape.empty() ? 0 : from.info.shape[0], " rows are not those of queries, keys and values");
  OwnedTensor to{from.info, {}};
  to.info.name = name;
  to.info.shape[0] /= 3;
  const auto bytes = static_cast<std::ptrdiff_t>(from.bytes.size() / 3);
  const auto begin = from.bytes.begin() + static_cast<std::ptrdiff_t>(part) * bytes;
  to.bytes.assign(begin, begin + bytes);
  return to;
}

void add(OwnedTensors& to, OwnedTensor tensor) {
  const std::string name = tensor.info.name;
  ISOBAR_CHECK(to.emplace(name, std::move(tensor)).second, "two tensors of the file are ", name);
}

// "h.3.mlp.c_fc.weight" -> 3 and "mlp.c_fc.weight"; -1: not of a block.
std::pair<std::int64_t, std::string> place_in_blocks(const std::string& name, std::string_view blocks) {
  if (!name.starts_with(blocks)) return {-1, name};
  const std::size_t dot = name.find('.', blocks.size());
  const std::string number = name.substr(blocks.size(), dot - blocks.size());
  if (dot == std::string::npos || number.empty() || number.size() > 6 ||
      !std::ranges::all_of(number, [](char c) { return c >= '0' && c <= '9'; }))
    return {-1, name};
  return {std::stoll(number), name.substr(dot + 1)};
}

// "mlp.c_fc.weight" -> "mlp.c_fc" and "weight".
std::pair<std::string, std::string> layer_and_kind(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string::npos ? std::pair(name, std::string())
                                  : std::pair(name.substr(0, dot), name.substr(dot + 1));
}

std::string without_prefix(const std::string& name) {
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
}

bool is_mask(const std::string& name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

const std::string kFirstAttention = "h.0.attn.c_attn.weight";

// c_attn of the first block; null: there is none.
const OwnedTensor* attention_of(const OwnedTensors& tensors) {
  for (const std::string& name : {std::string(kPrefix) + kFirstAttention, kFirstAttention})
    if (const auto found = tensors.find(name); found != tensors.end()) return &found->second;
  return nullptr;
}

void add_tensors(OwnedTensors& to, const SafetensorsReader& file) {
  for (const TensorInfo& info : file.tensors()) {
    OwnedTensor tensor{info, std::vector<std::byte>(bytes_of(info))};
    file.read(info, 0, elements_of(info), info.dtype, tensor.bytes.data());
    add(to, std::move(tensor));
  }
}

// Of a block, to isobar's names. Takes the tensor, so that not all weights are held twice at once.
void add_from_block(OwnedTensors& to, OwnedTensor from, std::int64_t block, const std::string& place,
                    bool is_huggingface) {
  const auto [layer, kind] = layer_and_kind(place);
  const std::string prefix = concat("blocks.", block, ".");
  const bool is_transposed = is_huggingface && kind == "weight";
  if (layer == "attn.c_attn") {
    const OwnedTensor rows = is_transposed ? transposed(from) : std::move(from);
    for (std::size_t part = 0; part < kStacked.size(); ++part)
      add(to, third_of_rows(rows, part, prefix + "attn." + kStacked[part] + "." + kind));
    return;
  }
  const auto* known = std::ranges::find_if(kLayersOfBlock, [&](const LayerName& l) { return layer == l.foreign; });
  ISOBAR_CHECK(known != kLayersOfBlock.end(), "a GPT has no tensor ", from.info.name);
  OwnedTensor own = is_transposed && known->is_matrix ? transposed(from) : std::move(from);
  own.info.name = prefix + known->own + "." + kind;
  add(to, std::move(own));
}

// A head that is the table of tokens once more is tied.
void drop_tied_head(OwnedTensors& weights) {
  const auto head = weights.find("head.weight"), table = weights.find("wte.weight");
  if (head != weights.end() && table != weights.end() && head->second.bytes == table->second.bytes) weights.erase(head);
}

OwnedTensor stacked(const OwnedTensors& weights, const std::string& prefix, const std::string& kind,
                    const std::string& name) {
  OwnedTensor all;
  for (const char* part : kStacked) {
    const auto found = weights.find(prefix + part + "." + kind);
    ISOBAR_CHECK(found != weights.end(), "the weights have no ", prefix, part, ".", kind);
    if (all.bytes.empty()) all.info = found->second.info, all.info.shape[0] = 0;
    all.info.shape[0] += found->second.info.shape[0];
    all.bytes.insert(all.bytes.end(), found->second.bytes.begin(), found->second.bytes.end());
  }
  all.info.name = name;
  return all;
}

}  // namespace

ForeignWeights read_foreign_weights(const std::filesystem::path& path) {
  ForeignWeights weights{.path = path, .tensors = {}};
  if (!std::filesystem::is_directory(path)) {
    const SafetensorsReader file(path);
    add_tensors(weights.tensors, file);
    weights.metadata = file.metadata();
    return weights;
  }
  for (const std::string& part : weight_files_of(path)) add_tensors(weights.tensors, SafetensorsReader(path / part));
  return weights;
}

bool has_foreign_names(const TensorReader& file) {
  return file.find(std::string(kPrefix) + kFirstAttention) != nullptr || file.find(kFirstAttention) != nullptr ||
         has_megatron_names(file);
}

GptNames names_of_gpt(const ForeignWeights& weights) {
  const OwnedTensors& tensors = weights.tensors;
  if (tensors.contains("blocks.0.attn.q.weight") && tensors.contains("wte.weight")) return GptNames::isobar;
  if (has_megatron_names(tensors)) return GptNames::megatron;
  const OwnedTensor* attention = attention_of(tensors);
  ISOBAR_CHECK(
      attention != nullptr && attention->info.shape.size() == 2, weights.path.string(),
      ": these are not the weights of a GPT under the names of isobar, nanoGPT, Hugging Face or Megatron-LM's core");
  const std::int64_t rows = attention->info.shape[0], cols = attention->info.shape[1];
  ISOBAR_CHECK(rows == 3 * cols || cols == 3 * rows, weights.path.string(), ": ", attention->info.name, " is ", rows,
               " x ", cols, "; one side must be three times the other");
  return rows == 3 * cols ? GptNames::nanogpt : GptNames::huggingface;
}

OwnedTensors gpt_to_isobar(ForeignWeights foreign, std::int64_t heads) {
  const GptNames names = names_of_gpt(foreign);
  if (names == GptNames::isobar) return std::move(foreign.tensors);
  OwnedTensors weights;
  if (names == GptNames::megatron) {
    weights = gpt_from_megatron(std::move(foreign.tensors), heads);
    drop_tied_head(weights);
    return weights;
  }
  for (auto& [there, tensor] : foreign.tensors) {
    if (is_mask(there)) continue;
    const std::string name = without_prefix(there);
    const auto [block, place] = place_in_blocks(name, "h.");
    if (block >= 0) {
      add_from_block(weights, std::move(tensor), block, place, names == GptNames::huggingface);
      continue;
    }
    const auto [layer, kind] = layer_and_kind(name);
    const std::string own = layer == "ln_f" ? "norm" : layer == "lm_head" ? "head" : layer;
    ISOBAR_CHECK(own == "norm" || own == "head" || own == "wte" || own == "wpe", foreign.path.string(),
                 ": a GPT has no tensor ", there);
    tensor.info.name = own + "." + kind;
    add(weights, std::move(tensor));
  }
  drop_tied_head(weights);
  return weights;
}

// Queries, keys and values are one tensor elsewhere: where one of them lies alone, it would be lost.
void check_queries(const OwnedTensors& weights) {
  for (const auto& [name, tensor] : weights) {
    const auto [block, place] = place_in_blocks(name, "blocks.");
    const auto [layer, kind] = layer_and_kind(place);
    const std::string query = concat("blocks.", block, ".attn.q.", kind);
    ISOBAR_CHECK(block < 0 || (layer != "attn.k" && layer != "attn.v") || weights.contains(query), "the weights have ",
                 name, ", but no ", query);
  }
}

OwnedTensors gpt_from_isobar(const OwnedTensors& weights, GptNames names, std::int64_t heads) {
  if (names == GptNames::isobar) return weights;
  check_queries(weights);
  if (names == GptNames::megatron) return gpt_to_megatron(weights, heads);
  const bool is_huggingface = names == GptNames::huggingface;
  OwnedTensors other;
  const auto give = [&](OwnedTensor tensor, const std::string& name, bool is_matrix) {
    if (is_huggingface && is_matrix) tensor = transposed(tensor);
    tensor.info.name = name;
    add(other, std::move(tensor));
  };
  for (const auto& [name, tensor] : weights) {
    const auto [block, place] = place_in_blocks(name, "blocks.");
    const auto [layer, kind] = layer_and_kind(place);
    if (block < 0) {
      const std::string there = layer == "norm" ? "ln_f" : layer;
      give(tensor, layer == "head" ? "lm_head.weight" : std::string(kPrefix) + there + "." + kind, false);
      continue;
    }
    const std::string prefix = concat(kPrefix, "h.", block, ".");
    if (layer == "attn.q") {
      const std::string there = prefix + "attn.c_attn." + kind;
      give(stacked(weights, concat("blocks.", block, ".attn."), kind, there), there, kind == "weight");
    } else if (layer != "attn.k" && layer != "attn.v") {
      const auto* known = std::ranges::find_if(kLayersOfBlock, [&](const LayerName& l) { return layer == l.own; });
      ISOBAR_CHECK(known != kLayersOfBlock.end(), "a GPT has no tensor ", name);
      give(tensor, prefix + known->foreign + "." + kind, known->is_matrix && kind == "weight");
    }
  }
  return other;
}

void set_vocabulary_rows(OwnedTensors& weights, std::int64_t rows) {
  for (const char* name : {"wte.weight", "head.weight"}) {
    const auto found = weights.find(name);
    if (found == weights.end()) continue;
    OwnedTensor& table = found->second;
    ISOBAR_CHECK(table.info.shape.size() == 2 && table.info.shape[0] > 0, name, " is not a table of tokens");
    const std::size_t row = table.bytes.size() / static_cast<std::size_t>(table.info.shape[0]);
    table.info.shape[0] = rows;
    table.bytes.resize(row * static_cast<std::size_t>(rows), std::byte{0});
  }
}

void add_zero_biases(OwnedTensors& weights) {
  OwnedTensors biases;
  for (const auto& [name, tensor] : weights) {
    const auto [layer, kind] = layer_and_kind(name);
    const bool has_bias = layer != "wte" && layer != "wpe" && layer != "head";
    const std::string bias = layer + ".bias";
    if (kind != "weight" || !has_bias || weights.contains(bias)) continue;
    OwnedTensor zeros{{.name = bias, .dtype = tensor.info.dtype, .shape = {tensor.info.shape.at(0)}}, {}};
    zeros.bytes.resize(bytes_of(zeros.info), std::byte{0});
    add(biases, std::move(zeros));
  }
  weights.merge(biases);
}

OwnedTensorReader::OwnedTensorReader(std::filesystem::path path, OwnedTensors tensors)
    : path_(std::move(path)), owned_(std::move(tensors)) {
  for (const auto& [name, tensor] : owned_) infos_.push_back(tensor.info);
}

const TensorInfo* OwnedTensorReader::find(const std::string& name) const {
  const auto found = owned_.find(name);
  return found == owned_.end() ? nullptr : &found->second.info;
}

void OwnedTensorReader::read(const TensorInfo& tensor, std::int64_t first, std::int64_t count, DType to,
                             std::byte* out) const {
  const OwnedTensor& owned = owned_.at(tensor.name);
  const std::size_t size = size_of(owned.info.dtype);
  const std::span<const std::byte> bytes =
      std::span(owned.bytes).subspan(static_cast<std::size_t>(first) * size, static_cast<std::size_t>(count) * size);
  copy_elements({{.name = tensor.name, .dtype = owned.info.dtype, .shape = {count}}, bytes}, to, out);
}

}  // namespace isobar
