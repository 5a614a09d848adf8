#include "models/gpt/options.h"

#include "kernels/common/check.h"
#include "kernels/common/math.h"

namespace isobar {
namespace {

constexpr std::int64_t kMaxBlocksOfGpt = 8000;  // a pass has mask numbers for 8190 stages (models/pass.h)
constexpr std::int64_t kMaxSizeOfGpt = std::int64_t{1}
                                       << 20;  // of any of its sizes, so that products of sizes do not overflow
constexpr std::int64_t kHiddenPerChannelOfGpt = 4;
constexpr std::int64_t kMaxHeadSize = 128, kHeadSizeUnit = 8;  // kernels/attention/attention.h

}  // namespace

KeyTable GptOptions::keys() {
  return {
      "The language model GPT",
      {key("embed_dim", embed_dim, "width of a token")
           .within(1, kMaxSizeOfGpt)
           .also_called({"hiddensize", "hiddendim", "dmodel", "nembd", "width"}),
       key("depth", depth, "number of transformer blocks")
           .within(1, kMaxBlocksOfGpt)
           .also_called({"layers", "numlayers", "nlayers", "nlayer", "blocks"}),
       key("num_heads", num_heads, "attention heads")
           .within(1, kMaxSizeOfGpt)
           .also_called({"heads", "nhead", "nheads", "numattentionheads"}),
       key("head_size", head_size, "channels of a head, a multiple of 8 up to 128; null: embed_dim / num_heads")
           .within(kHeadSizeUnit, kMaxHeadSize)
           .also_called({"kvchannels", "headdim"}),
       key("mlp_hidden", mlp_hidden, "channels within the MLP; null: 4 times embed_dim")
           .within(1, kMaxSizeOfGpt)
           .also_called({"ffnhiddensize", "ninner"}),
       key("positions", positions, "the longest sample that the network has positions for; null: seq_length")
           .within(1, kMaxSizeOfGpt)
           .also_called({"maxpositionembeddings", "npositions", "blocksize"}),
       key("gelu", gelu, "form of the GELU: tanh (as GPT-2 has it) or erf (exact)").also_called({"activation"}),
       key("bias", bias, "whether products and norms have biases"),
       key("tie_head", tie_head, "whether the last product has the weights of the embedding of tokens")
           .also_called({"tiewordembeddings"}),
       key("embedding_dropout", embedding_dropout, "dropout of the embeddings").fraction().also_called({"embdpdrop"}),
       key("attention_dropout", attention_dropout, "dropout of the attention probabilities")
           .fraction()
           .also_called({"attnpdrop"}),
       key("hidden_dropout", hidden_dropout, "dropout of what attention and the MLP add to the residual stream")
           .fraction()
           .also_called({"residpdrop"}),
       key("init_std", init_std,
           "standard deviation of initial weights; of the last product of a branch divided by the root of 2 * depth")
           .at_least(0)
           .also_called({"initmethodstd", "initializerrange"}),
       key("norm_eps", norm_eps, "what layer norm adds to the variance")
           .greater_than(0)
           .also_called({"layernormepsilon"}),
       key("vocab_multiple", vocab_multiple, "the table of tokens has rows up to a multiple of this")
           .within(1, kMaxSizeOfGpt)
           .also_called({"makevocabsizedivisibleby"}),
       key("vocab_padding", vocab_padding,
           "the rows beyond the vocabulary: masked (no probability and no gradient; the loss does not depend on "
           "vocab_multiple) or live (they count, as in Megatron-LM)")},
      [this](const KeyOrigins& origins) {
        ISOBAR_CHECK(head_size || embed_dim % num_heads == 0, origins.where("embed_dim"),
                     " must be a multiple of num_heads (", num_heads, "), not ", embed_dim, "; or set head_size");
        ISOBAR_CHECK(size_of_head() % kHeadSizeUnit == 0 && size_of_head() <= kMaxHeadSize,
                     origins.where(head_size ? "head_size" : "embed_dim"), head_size ? "" : " divided by num_heads",
                     " must be a multiple of ", kHeadSizeUnit, " up to ", kMaxHeadSize, ", not ", size_of_head());
        check_filled("positions", positions.has_value(), origins);
      }};
}

GptConfig GptOptions::config(const Ports& ports) const {
  return {.vocabulary = ports.vocabulary,
          .columns = ceil_div(ports.vocabulary, vocab_multiple) * vocab_multiple,
          .positions = *positions,
          .embed = embed_dim,
          .depth = depth,
          .heads = num_heads,
          .head_size = size_of_head(),
          .hidden = mlp_hidden.value_or(kHiddenPerChannelOfGpt * embed_dim),
          .gelu = gelu == GeluForm::tanh ? Activation::gelu_tanh : Activation::gelu_erf,
          .bias = bias,
          .tie_head = tie_head,
          .pads_count = vocab_padding == VocabPadding::live,
          .norm_eps = norm_eps,
          .init_std = init_std,
          .embedding_dropout = embedding_dropout,
          .attention_dropout = attention_dropout,
          .hidden_dropout = hidden_dropout};
}

}  // namespace isobar
