#include "comm/context_attention.h"

#include <optional>
#include <utility>
#include <vector>

#include "engine/ops/attention_block.h"
#include "engine/ops/common.h"
#include "engine/stream.h"
#include "kernels/attention/merge.h"

namespace isobar {
namespace {

// What the three forms share, apart from the tensors.
struct Shared {
  AttentionOptions options;
  ShardedAxis tokens;
  Communicator ranks;

  std::int64_t batch() const { return options.batch; }
  int rank() const { return ranks.rank(); }
  int neighbour(int steps) const { return (ranks.rank() + steps + ranks.size()) % ranks.size(); }

  const std::vector<Part>& chunks(int of) const { return tokens.chunks(of); }
  std::vector<Tensor> cut(const Tensor& x) const { return cut_chunks(x, batch(), chunks(rank())); }
  Tensor join(const std::vector<Tensor>& cut) const { return join_chunks(cut, batch(), chunks(rank())); }

  // Attention of a chunk of this rank's queries to one block of keys. `keys`: where it lies in the sample.
  AttentionBlock block(const Columns& q, const Columns& k, const Columns& v, const Part& queries,
                       const Span& keys) const {
    AttentionOptions own = options;
    own.window.queries = tokens.span(queries);
    own.window.keys = keys;
    own.keys = {limits_of(options.keys.begin, queries), limits_of(options.keys.end, queries), options.keys.share};
    return {q, k, v, own};
  }
  // Of all queries of the samples, [B, T], those of a chunk.
  Tensor limits_of(const Tensor& limits, const Part& queries) const {
    if (!limits.defined()) return {};
    const Tensor own = Tensor::empty({batch(), queries.size()}, limits.dtype(), limits.device());
    copy_strided(own, {0, queries.size()}, limits, {queries.begin, tokens.total()}, batch(), queries.size());
    return own;
  }
  // Whether some query of a chunk sees a key of another.
  bool sees(const Part& queries, const Part& keys) const { return !options.causal || keys.begin < queries.end; }
};

Columns third_of(const Tensor& qkv, std::int64_t which) {
  const std::int64_t embed = qkv.size(1) / 3;
  return {qkv, which * embed, embed};
}
Columns half_of(const Tensor& kv, std::int64_t which) {
  const std::int64_t embed = kv.size(1) / 2;
  return {kv, which * embed, embed};
}

Tensor empty_like(const Tensor& x, Shape shape) {
  return Tensor::empty(std::move(shape), x.dtype(), x.device());
}

// Columns [C, 3·C) of qkv as a separate tensor, and back.
Tensor keys_and_values(const Tensor& qkv) {
  const std::int64_t rows = qkv.size(0), width = qkv.size(1), embed = width / 3;
  const Tensor kv = empty_like(qkv, {rows, 2 * embed});
  copy_strided(kv, {0, 2 * embed}, qkv, {embed, width}, rows, 2 * embed);
  return kv;
}
void put_keys_and_values(const Tensor& qkv, const Tensor& kv) {
  const std::int64_t rows = qkv.size(0), width = qkv.size(1), embed = width / 3;
  copy_strided(qkv, {embed, width}, kv, {0, 2 * embed}, rows, 2 * embed);
}

// ---- Tokens exchanged for heads: all_to_all -------------------------------------------------------------------------

// Matrices [rows, parts·heads·HS] change between two layouts: rows are this rank's tokens and columns all heads
// ("tokens"), or rows are all tokens and columns this rank's heads ("heads"). parts: 3 for qkv, 1 for o.
class HeadExchange {
 public:
  HeadExchange(const Shared& shared, std::int64_t head_size)
      : shared_(shared), heads_(shared.options.heads, shared.ranks.size()), head_size_(head_size) {}

  std::int64_t own_heads() const { return heads_.count(shared_.rank()); }
  // This rank's heads, among all the heads that the dropout mask covers.
  Span window() const {
    const Span& all = shared_.options.window.heads;
    return {all.first + heads_.first(shared_.rank()), all.total != 0 ? all.total : heads_.total()};
  }

  Tensor to_heads(const Tensor& x, std::int64_t parts) const {
    const Tensor send = Tensor::empty(x.shape(), x.dtype(), x.device());
    for (int r = 0; r < heads_.ranks(); ++r) copy_columns(send, x, parts, r, /*pack=*/true);
    const std::int64_t batch = shared_.batch(), width = parts * own_heads() * head_size_;
    const Tensor received = empty_like(x, {batch * shared_.tokens.total(), width});
    const std::int64_t own_tokens = shared_.tokens.count(shared_.rank());
    shared_.ranks.all_to_all(send, heads_.elements(batch * own_tokens * parts * head_size_), received,
                             shared_.tokens.elements(batch * width));
    const Tensor y = empty_like(x, received.shape());
    for (int r = 0; r < heads_.ranks(); ++r) copy_tokens(y, received, width, r, /*pack=*/false);
    return y;
  }

  Tensor to_tokens(const Tensor& x, std::int64_t parts) const {
    const std::int64_t batch = shared_.batch(), width = x.size(1);
    const Tensor send = Tensor::empty(x.shape(), x.dtype(), x.device());
    for (int r = 0; r < heads_.ranks(); ++r) copy_tokens(x, send, width, r, /*pack=*/true);
    const std::int64_t own_tokens = shared_.tokens.count(shared_.rank());
    const Tensor y = empty_like(x, {batch * own_tokens, parts * heads_.total() * head_size_});
    const Tensor received = Tensor::empty(y.shape(), x.dtype(), x.device());
    shared_.ranks.all_to_all(send, shared_.tokens.elements(batch * width), received,
                             heads_.elements(batch * own_tokens * parts * head_size_));
    for (int r = 0; r < heads_.ranks(); ++r) copy_columns(received, y, parts, r, /*pack=*/false);
    return y;
  }

 private:
  // Copies between x, in the layout "tokens", and `packed`, where rank r's heads have their own rows. pack: from x.
  void copy_columns(const Tensor& packed, const Tensor& x, std::int64_t parts, int r, bool pack) const {
    const std::int64_t rows = x.size(0), own = heads_.count(r) * head_size_, all = heads_.total() * head_size_;
    for (std::int64_t part = 0; part < parts; ++part) {
      const StridedBlocks wide{part * all + heads_.first(r) * head_size_, parts * all};
      const StridedBlocks narrow{rows * parts * heads_.first(r) * head_size_ + part * own, parts * own};
      if (pack)
        copy_strided(packed, narrow, x, wide, rows, own);
      else
        copy_strided(x, wide, packed, narrow, rows, own);
    }
  }
  // Copies between x, in the layout "heads", and `packed`, where rank r's tokens of all samples lie. pack: from x.
  void copy_tokens(const Tensor& x, const Tensor& packed, std::int64_t width, int r, bool pack) const {
    copy_part(pack ? AxisCopy::to_parts : AxisCopy::from_parts, x, packed, shared_.batch(), width, shared_.tokens, r);
  }

  const Shared& shared_;
  ShardedAxis heads_;
  std::int64_t head_size_;
};

AttentionBlock block_of_heads(const HeadExchange& exchange, const Tensor& qkv, AttentionOptions options) {
  options.heads = exchange.own_heads();
  options.window = {.samples = options.window.samples, .heads = exchange.window()};
  return {third_of(qkv, 0), third_of(qkv, 1), third_of(qkv, 2), options};
}

Tensor attend_by_heads(const Tensor& qkv, const Shared& shared) {
  const std::int64_t head_size = qkv.size(1) / 3 / shared.options.heads;
  const HeadExchange exchange(shared, head_size);
  const Tensor all = exchange.to_heads(qkv, 3);
  const AttentionBlock block = block_of_heads(exchange, all, shared.options);
  const Tensor own = empty_like(qkv, {all.size(0), all.size(1) / 3}), lse = block.empty_lse();
  run_attention(block, own, lse);
  Tensor o = exchange.to_tokens(own, 1);
  Tape::record(
      "context_attention", {&qkv}, {all, own, lse}, {&o},
      [shared, head_size, all, own, lse, qkv = Target(qkv)](Gradients& gradients, const std::vector<Tensor>& dy) {
        const HeadExchange back(shared, head_size);
        const AttentionBlock heads = block_of_heads(back, all, shared.options);
        const Tensor d_o = back.to_heads(dy[0], 1), d_all = gradient_like(all);
        run_attention_backward(heads, own, lse, d_o, {third_of(d_all, 0), third_of(d_all, 1), third_of(d_all, 2)});
        gradients.give(qkv, back.to_tokens(d_all, 3));
      });
  return o;
}

// ---- Own queries over all keys: gather ------------------------------------------------------------------------------

// The attention of each chunk of queries to the keys and values of all tokens.
class GatheredAttention {
 public:
  explicit GatheredAttention(const Shared& shared) : shared_(shared) {}

  Tensor gather(const Tensor& qkv) const {
    const MemoryScope memory("workspace");
    return gather_axis(keys_and_values(qkv), shared_.batch(), shared_.tokens, shared_.ranks);
  }
  AttentionBlock block(std::size_t chunk, const Tensor& qkv, const Tensor& kv) const {
    const Part& queries = shared_.chunks(shared_.rank())[chunk];
    return shared_.block(third_of(qkv, 0), half_of(kv, 0), half_of(kv, 1), queries, {0, shared_.tokens.total()});
  }

  // o; appends an lse for each chunk.
  Tensor forward(const Tensor& qkv, std::vector<Tensor>& lse) const {
    const Tensor kv = gather(qkv);
    std::vector<Tensor> outputs;
    for (const Tensor& own : shared_.cut(qkv)) {
      const AttentionBlock queries = block(outputs.size(), own, kv);
      outputs.push_back(empty_like(qkv, {own.size(0), own.size(1) / 3}));
      lse.push_back(queries.empty_lse());
      run_attention(queries, outputs.back(), lse.back());
    }
    return shared_.join(outputs);
  }

  Tensor backward(const Tensor& qkv, const Tensor& o, const std::vector<Tensor>& lse, const Tensor& d_o) const {
    const Tensor kv = gather(qkv);
    const std::vector<Tensor> own = shared_.cut(qkv), outputs = shared_.cut(o), d_outputs = shared_.cut(d_o);
    std::vector<Tensor> made;
    for (const Tensor& chunk : own) made.push_back(gradient_like(chunk));
    const Tensor dkv = gradient_like(kv);
    for (std::size_t i = 0; i < own.size(); ++i)
      run_attention_backward(block(i, own[i], kv), outputs[i], lse[i], d_outputs[i],
                             {.dq = third_of(made[i], 0),
                              .dk = half_of(dkv, 0),
                              .dv = half_of(dkv, 1),
                              .dkv_mode = i == 0 ? Grad::overwrite : Grad::accumulate});
    Tensor dqkv = shared_.join(made);
    put_keys_and_values(dqkv, reduce_scatter_axis(dkv, shared_.batch(), shared_.tokens, shared_.ranks));
    return dqkv;
  }

 private:
  const Shared& shared_;
};

Tensor attend_to_gathered(const Tensor& qkv, const Shared& shared) {
  std::vector<Tensor> lse;
  Tensor o = GatheredAttention(shared).forward(qkv.detach(), lse);
  std::vector<Tensor> saved{qkv, o};
  saved.insert(saved.end(), lse.begin(), lse.end());
  Tape::record("context_attention", {&qkv}, saved, {&o},
               [shared, lse, values = qkv.detach(), o = o.detach(), qkv = Target(qkv)](Gradients& gradients,
                                                                                       const std::vector<Tensor>& dy) {
                 gradients.give(qkv, GatheredAttention(shared).backward(values, o, lse, dy[0]));
               });
  return o;
}

// ---- Blocks of keys around a ring: ring -----------------------------------------------------------------------------

// The stream of the transfers: a side stream if calls of other groups may be in flight meanwhile, else the current one.
// It is thread-local because each rank is a thread.
SideStream& ring_stream(const Communicator& ranks, Device of_blocks) {
  const Device device = ranks.may_overlap() ? of_blocks : Device{};  // the CPU has no stream but the current one
  static thread_local std::optional<std::pair<Device, SideStream>> kept;
  if (!kept || !(kept->first == device)) kept.emplace(device, SideStream(device));
  return kept->second;
}

// Calls visit(r, keys and values of rank r): first for this rank's block, then for those of the preceding ranks in
// turn. During a visit the block is sent to the next rank, and the following block is received.
template <class Visit>
void visit_blocks(const Shared& shared, Tensor kv, const Visit& visit) {
  SideStream& side = ring_stream(shared.ranks, kv.device());
  for (int step = 0; step < shared.ranks.size(); ++step) {
    const bool is_last = step + 1 == shared.ranks.size();
    Tensor next;
    std::optional<Pending> transfer;  // declared after `next`: the transfer ends before its memory is freed
    if (!is_last) {
      const std::int64_t rows = shared.batch() * shared.tokens.count(shared.neighbour(-step - 1));
      next = empty_like(kv, {rows, kv.size(1)});
      transfer.emplace(
          side.run([&] { shared.ranks.send_receive(kv, shared.neighbour(1), next, shared.neighbour(-1)); }));
    }
    visit(shared.neighbour(-step), kv);
    if (transfer) transfer->wait();
    kv = next;
  }
}

void fill_with_zeros(const Tensor& x) {
  ISOBAR_RUN(x.device(), fill, {.n = x.numel(), .dtype = x.dtype(), .value = 0, .y = x.data()}, current_stream());
}

// Merges the output of one more block into o and lse, which cover all keys so far.
void merge(const AttentionBlock& block, const Tensor& o, const Tensor& lse, const Tensor& other_o,
           const Tensor& other_lse) {
  ISOBAR_RUN(o.device(), attention_merge,
             {.batch = block.shape.batch,
              .heads = block.shape.heads,
              .tokens = block.shape.q_tokens,
              .head_size = block.shape.head_size,
              .dtype = o.dtype(),
              .o = o.data(),
              .lse = lse.data(),
              .other_o = other_o.data(),
              .other_lse = other_lse.data(),
              .o_stride = o.size(1),
              .other_stride = other_o.size(1)},
             current_stream());
}

// The gradient of a block's keys and values as it passes around the ring: every rank adds its term and sends the sum
// on.
class RingGradient {
 public:
  explicit RingGradient(const Shared& shared) : shared_(shared) {}

  // `term`: this rank's gradient of rank `of`'s keys and values; may be modified. It is sent while the next is
  // computed.
  void add_and_send(int of, const Tensor& term) {
    if (transfer_) {
      arrive();
      add_into(term, received_);
    }
    sent_ = term;
    const int before = (of - 1 + shared_.ranks.size()) % shared_.ranks.size();  // whose block the previous rank has
    received_ = empty_like(term, {shared_.batch() * shared_.tokens.count(before), term.size(1)});
    transfer_.emplace(ring_stream(shared_.ranks, term.device()).run([&] {
      shared_.ranks.send_receive(sent_, shared_.neighbour(1), received_, shared_.neighbour(-1));
    }));
  }
  // After the last block: the gradient of this rank's own keys and values, summed over all ranks.
  const Tensor& result() {
    arrive();
    return received_;
  }

 private:
  void arrive() {
    transfer_->wait();
    transfer_.reset();
  }

  const Shared& shared_;
  Tensor sent_, received_;
  std::optional<Pending> transfer_;  // declared after the two tensors that it uses
};

// The outputs of a chunk of queries over the blocks of keys so far.
class RunningOutput {
 public:
  RunningOutput(const Tensor& qkv, const Tensor& lse)
      : lse_(lse), o_(Tensor::empty({qkv.size(0), qkv.size(1) / 3}, lse.dtype(), lse.device())) {}

  void add(const AttentionBlock& block) {
    if (is_first_) return run_first(block);
    const Tensor o = Tensor::empty(o_.shape(), o_.dtype(), o_.device()), lse = block.empty_lse();
    run_attention(block, o, lse);
    merge(block, o_, lse_, o, lse);
  }
  const Tensor& o() const { return o_; }

 private:
  void run_first(const AttentionBlock& block) {
    run_attention(block, o_, lse_);
    is_first_ = false;
  }

  Tensor lse_, o_;
  bool is_first_ = true;
};

// Calls visit(i, j) for the chunks i of this rank's queries and j of rank `of`'s keys that some of them see.
template <class Visit>
void visit_seen(const Shared& shared, int of, const Visit& visit) {
  const std::vector<Part>&queries = shared.chunks(shared.rank()), &keys = shared.chunks(of);
  for (std::size_t i = 0; i < queries.size(); ++i)
    for (std::size_t j = 0; j < keys.size(); ++j)
      if (shared.sees(queries[i], keys[j])) visit(i, j);
}

// The block of chunk i of this rank's queries with chunk j of rank `of`'s keys and values.
AttentionBlock ring_block(const Shared& shared, const Tensor& qkv, std::size_t i, int of, const Tensor& kv,
                          std::size_t j) {
  return shared.block(third_of(qkv, 0), half_of(kv, 0), half_of(kv, 1), shared.chunks(shared.rank())[i],
                      shared.tokens.span(shared.chunks(of)[j]));
}

// A rank's own keys come first, and every query sees one of its own: itself. So no chunk is without an output.
Tensor ring_forward(const Tensor& qkv, const Shared& shared, const std::vector<Tensor>& lse) {
  const std::vector<Tensor> own = shared.cut(qkv);
  std::vector<RunningOutput> outputs;
  for (std::size_t i = 0; i < own.size(); ++i) outputs.emplace_back(own[i], lse[i]);
  const auto visit = [&](int of, const Tensor& block) {
    const std::vector<Tensor> kv = cut_chunks(block, shared.batch(), shared.chunks(of));
    visit_seen(shared, of,
               [&](std::size_t i, std::size_t j) { outputs[i].add(ring_block(shared, own[i], i, of, kv[j], j)); });
  };
  {
    const MemoryScope memory("workspace");
    visit_blocks(shared, keys_and_values(qkv), visit);
  }
  std::vector<Tensor> o;
  for (const RunningOutput& output : outputs) o.push_back(output.o());
  return shared.join(o);
}

Tensor ring_backward(const Tensor& qkv, const Shared& shared, const Tensor& o, const std::vector<Tensor>& lse,
                     const Tensor& d_o) {
  const DType accumulator = accumulator_of(qkv.dtype());
  const auto empty = [&](const Tensor& like) { return Tensor::empty(like.shape(), accumulator, like.device()); };
  const std::vector<Tensor> own = shared.cut(qkv), outputs = shared.cut(o), d_outputs = shared.cut(d_o);
  const MemoryScope memory("gradients");
  std::vector<Tensor> made;
  std::vector<Grad> dq_mode(own.size(), Grad::overwrite);
  for (const Tensor& chunk : own) made.push_back(empty(chunk));
  RingGradient dkv(shared);
  visit_blocks(shared, keys_and_values(qkv), [&](int of, const Tensor& block) {
    const std::vector<Tensor> kv = cut_chunks(block, shared.batch(), shared.chunks(of));
    std::vector<Tensor> terms;
    std::vector<Grad> dkv_mode(kv.size(), Grad::overwrite);
    for (const Tensor& chunk : kv) terms.push_back(empty(chunk));
    visit_seen(shared, of, [&](std::size_t i, std::size_t j) {
      run_attention_backward(ring_block(shared, own[i], i, of, kv[j], j), outputs[i], lse[i], d_outputs[i],
                             {.dq = third_of(made[i], 0),
                              .dk = half_of(terms[j], 0),
                              .dv = half_of(terms[j], 1),
                              .dq_mode = dq_mode[i],
                              .dkv_mode = dkv_mode[j]});
      dq_mode[i] = dkv_mode[j] = Grad::accumulate;
    });
    for (std::size_t j = 0; j < kv.size(); ++j)
      if (dkv_mode[j] == Grad::overwrite) fill_with_zeros(terms[j]);  // no query of this rank sees it
    dkv.add_and_send(of, join_chunks(terms, shared.batch(), shared.chunks(of)));
  });
  Tensor dqkv = shared.join(made);
  put_keys_and_values(dqkv, dkv.result());
  return dqkv;
}

Tensor attend_in_ring(const Tensor& qkv, const Shared& shared) {
  std::vector<Tensor> lse;
  for (const Part& chunk : shared.chunks(shared.rank()))
    lse.push_back(
        Tensor::empty({shared.batch(), shared.options.heads, chunk.size()}, accumulator_of(qkv.dtype()), qkv.device()));
  Tensor o = ring_forward(qkv.detach(), shared, lse).to(qkv.dtype());
  std::vector<Tensor> saved{qkv, o};
  saved.insert(saved.end(), lse.begin(), lse.end());
  Tape::record("context_attention", {&qkv}, saved, {&o},
               [shared, lse, values = qkv.detach(), o = o.detach(), qkv = Target(qkv)](Gradients& gradients,
                                                                                       const std::vector<Tensor>& dy) {
                 gradients.give(qkv, ring_backward(values, shared, o, lse, dy[0]));
               });
  return o;
}

}  // namespace

ContextForm form_of(ContextForm asked, std::int64_t heads, int ranks) {
  if (asked == ContextForm::automatic) return heads >= ranks ? ContextForm::all_to_all : ContextForm::gather;
  ISOBAR_CHECK(asked != ContextForm::all_to_all || heads >= ranks, "context form all-to-all deals ", heads,
               " heads over ", ranks, " ranks, of which each needs one; use gather or ring");
  return asked;
}

Tensor context_attention(const Tensor& qkv, const AttentionOptions& options, const ShardedAxis& tokens,
                         const Communicator& ranks, ContextForm form) {
  if (ranks.size() == 1) return attention(qkv, options);
  ISOBAR_CHECK(tokens.ranks() == ranks.size(), "context attention: tokens dealt over ", tokens.ranks(), " ranks, and ",
               ranks.size(), " ranks");
  ISOBAR_CHECK(qkv.shape().size() == 2 && qkv.size(0) == options.batch * tokens.count(ranks.rank()) &&
                   options.heads >= 1 && qkv.size(1) % (3 * options.heads) == 0,
               "context attention: queries, keys and values ", to_string(qkv.shape()), " are not those of ",
               options.batch, " samples, ", tokens.count(ranks.rank()), " tokens and ", options.heads, " heads");
  const Shared shared{options, tokens, ranks};
  switch (form_of(form, options.heads, ranks.size())) {
    case ContextForm::gather:
      return attend_to_gathered(qkv, shared);
    case ContextForm::ring:
      return attend_in_ring(qkv, shared);
    default:
      return attend_by_heads(qkv, shared);
  }
}

}  // namespace isobar
