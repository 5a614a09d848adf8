// The size of a GPT: options of the config.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "engine/keys.h"
#include "models/gpt/gpt.h"

namespace isobar {

enum class GeluForm : std::uint8_t { tanh, erf };
enum class VocabPadding : std::uint8_t { masked, live };

template <>
struct EnumNames<GeluForm> {
  static constexpr std::array names{"tanh", "erf"};
};
template <>
struct EnumNames<VocabPadding> {
  static constexpr std::array names{"masked", "live"};
};

struct GptOptions {
  std::int64_t embed_dim = 768;
  std::int64_t depth = 12;
  std::int64_t num_heads = 12;
  std::optional<std::int64_t> head_size = {};   // null: embed_dim / num_heads
  std::optional<std::int64_t> mlp_hidden = {};  // null: 4·embed_dim
  std::optional<std::int64_t> positions = {};   // null: those of a sample
  GeluForm gelu = GeluForm::tanh;
  bool bias = true;
  bool tie_head = true;
  double embedding_dropout = 0, attention_dropout = 0, hidden_dropout = 0;
  double init_std = 0.02;
  double norm_eps = 1e-5;
  std::int64_t vocab_multiple = 128;
  VocabPadding vocab_padding = VocabPadding::masked;

  KeyTable keys();

  std::int64_t size_of_head() const { return head_size.value_or(embed_dim / num_heads); }
  // The network of this size for these ports; positions must be known.
  GptConfig config(const Ports& ports) const;
};

}  // namespace isobar
