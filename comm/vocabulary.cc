#include "comm/vocabulary.h"

#include <algorithm>

#include "comm/ops.h"
#include "engine/ops/common.h"
#include "kernels/common/math.h"
#include "kernels/gemm/gemm.h"

namespace isobar {
namespace {

constexpr std::int64_t kRowsOfGroup = 64;

Tensor vector_like(const Tensor& logits, std::int64_t n, DType dtype) {
  return Tensor::empty({n}, dtype, logits.device());
}

// What a pass over the logits of all ranks gives, row by row, and the sums over this rank's rows.
struct JoinedRows {
  Tensor max, sum, row_loss, prediction, sums;
};

void check_logits(const char* op, const Tensor& logits, const Tensor& labels, const VocabPart& part) {
  check_operands(op, {{"the matrix of logits", logits, 2}, {"the tensor of labels", labels}});
  ISOBAR_CHECK(labels.numel() == logits.size(0), op, ": labels ", to_string(labels.shape()), " do not fit logits ",
               to_string(logits.shape()));
  ISOBAR_CHECK(labels.dtype() == DType::i32, op, ": the labels are ", name_of(labels.dtype()), ", not i32");
  ISOBAR_CHECK(logits.size(1) == part.own.size(), op, ": logits ", to_string(logits.shape()), ", and this rank has ",
               part.own.size(), " rows of the table");
}

// What this rank finds in its columns of some rows, into [begin, begin + rows of logits) of parts, [3, all rows]: max,
// sum and the own target's logit.
void find_parts(const Tensor& logits, const Tensor& labels, std::int32_t ignore, const VocabPart& part,
                const Tensor& parts, std::int64_t begin, const Tensor& best = {}) {
  const std::int64_t rows = logits.size(0), all = parts.size(1);
  ISOBAR_RUN(logits.device(), cross_entropy_partial,
             {.rows = rows,
              .classes = logits.size(1),
              .padding = part.padding(),
              .columns = {part.own.begin, part.classes},
              .dtype = logits.dtype(),
              .ignore = ignore,
              .logits = logits.data(),
              .labels = labels.slice(begin, {rows}).data_as<std::int32_t>(),
              .max = parts.slice(begin, {rows}).data(),
              .sum = parts.slice(all + begin, {rows}).data(),
              .at_label = parts.slice(2 * all + begin, {rows}).data(),
              .best = best.defined() ? best.data_as<std::int32_t>() : nullptr},
             current_stream());
}

Tensor empty_parts(const Tensor& like, std::int64_t rows) {
  return Tensor::empty({3, rows}, accumulator_of(like.dtype()), like.device());
}

Tensor gathered(const Tensor& mine, const Communicator& ranks) {
  if (ranks.size() == 1) return mine;
  const Tensor all = Tensor::empty({ranks.size() * mine.numel()}, mine.dtype(), mine.device());
  ranks.all_gather(mine, all);
  return all;
}

// Of the parts that this rank has found, and those of the other ranks. best: of predictions, if they are wanted.
// `like`: has the logits' dtype.
JoinedRows join(const Tensor& own_parts, const Tensor& best, const Tensor& like, const Tensor& labels,
                std::int32_t ignore, const Communicator& columns) {
  const std::int64_t rows = labels.numel();
  const DType accumulator = own_parts.dtype();
  const Tensor parts = gathered(own_parts, columns), bests = best.defined() ? gathered(best, columns) : Tensor();
  JoinedRows joined{.max = vector_like(like, rows, accumulator),
                    .sum = vector_like(like, rows, accumulator),
                    .row_loss = vector_like(like, rows, accumulator),
                    .prediction = best.defined() ? vector_like(like, rows, DType::i32) : Tensor(),
                    .sums = vector_like(like, 2, DType::fp64)};
  ISOBAR_RUN(like.device(), cross_entropy_join,
             {.rows = rows,
              .ranks = columns.size(),
              .dtype = like.dtype(),
              .ignore = ignore,
              .labels = labels.data_as<std::int32_t>(),
              .parts = parts.data(),
              .bests = best.defined() ? bests.data_as<std::int32_t>() : nullptr,
              .max = joined.max.data(),
              .sum = joined.sum.data(),
              .row_loss = joined.row_loss.data(),
              .prediction = best.defined() ? joined.prediction.data_as<std::int32_t>() : nullptr,
              .sums = joined.sums.data_as<double>()},
             current_stream());
  return joined;
}

struct Mean {
  Tensor loss, counted;
};
// Of the rows of all ranks that have others.
Mean mean_over(const Tensor& sums, const Tensor& like, const Communicator& rows) {
  if (rows.size() > 1) rows.all_reduce(sums);
  Mean mean{vector_like(like, 1, accumulator_of(like.dtype())), vector_like(like, 1, DType::i32)};
  ISOBAR_RUN(like.device(), cross_entropy_finish,
             {.dtype = like.dtype(),
              .sums = sums.data_as<double>(),
              .loss = mean.loss.data(),
              .counted = mean.counted.data_as<std::int32_t>()},
             current_stream());
  return mean;
}

// What the backward pass reads besides logits.
struct SavedRows {
  Tensor labels, max, sum, counted;
  std::int32_t ignore;
  VocabPart part;

  // Of the rows of `logits`, which begin at `begin`; may be written over them.
  void differentiate(const Tensor& logits, std::int64_t begin, const Tensor& upstream, const Tensor& dlogits) const {
    const std::int64_t rows = logits.size(0);
    ISOBAR_RUN(logits.device(), cross_entropy_bwd,
               {.rows = rows,
                .classes = logits.size(1),
                .padding = part.padding(),
                .columns = {part.own.begin, part.classes},
                .dtype = logits.dtype(),
                .ignore = ignore,
                .logits = logits.data(),
                .labels = labels.slice(begin, {rows}).data_as<std::int32_t>(),
                .max = max.slice(begin, {rows}).data(),
                .sum = sum.slice(begin, {rows}).data(),
                .counted = counted.data_as<std::int32_t>(),
                .device_upstream = upstream.data(),
                .dlogits = dlogits.data()},
               current_stream());
  }
};

// A last product of which some rows are made at a time.
struct HeadInParts {
  Tensor x, weight;  // [M, C], [own rows of the table, C]
  HeadLossOptions options;

  // Calls visit(first row, x of some rows, room for their logits).
  template <class Visit>
  void visit(const Visit& visit) const {
    const std::int64_t rows = x.size(0), most = std::min(options.rows_at_a_time, rows);
    const MemoryScope memory("workspace");
    const Tensor room = Tensor::empty({most, weight.size(0)}, x.dtype(), x.device());
    for (std::int64_t begin = 0; begin < rows; begin += most) {
      const std::int64_t count = std::min(most, rows - begin);
      visit(begin, x.detach().slice(begin * x.size(1), {count, x.size(1)}), room.slice(0, {count, weight.size(0)}));
    }
  }
  void find_logits(const Tensor& some, const Tensor& logits) const {
    ISOBAR_RUN(x.device(), gemm,
               {.m = some.size(0),
                .n = weight.size(0),
                .k = x.size(1),
                .transpose_b = true,
                .in_dtype = x.dtype(),
                .out_dtype = logits.dtype(),
                .a = some.data(),
                .b = weight.data(),
                .c = logits.data(),
                .tf32 = options.tf32},
               current_stream());
  }
  // dx = dlogits·W of some rows, and their term of dW.
  void differentiate(const Tensor& some, const Tensor& dlogits, const Tensor& dx, const Tensor& dweight,
                     Grad mode) const {
    ISOBAR_RUN(x.device(), gemm,
               {.m = some.size(0),
                .n = x.size(1),
                .k = weight.size(0),
                .in_dtype = x.dtype(),
                .out_dtype = dx.dtype(),
                .a = dlogits.data(),
                .b = weight.data(),
                .c = dx.data(),
                .tf32 = options.tf32},
               current_stream());
    if (!dweight.defined()) return;
    ISOBAR_RUN(x.device(), gemm,
               {.m = weight.size(0),
                .n = x.size(1),
                .k = some.size(0),
                .transpose_a = true,
                .in_dtype = x.dtype(),
                .out_dtype = dweight.dtype(),
                .a = dlogits.data(),
                .b = some.data(),
                .c = dweight.data(),
                .mode = mode,
                .tf32 = options.tf32},
               current_stream());
  }
};

// The op on all rows of the product.
Tensor head_loss(const Tensor& x, const Tensor& weight, const Tensor& labels, const HeadLossOptions& options,
                 const VocabPart& part, const VocabRanks& ranks) {
  check_operands("vocab_head_loss", {{"the input", x, 2}, {"the weight", weight, 2}, {"the tensor of labels", labels}});
  ISOBAR_CHECK(x.size(1) == weight.size(1) && x.dtype() == weight.dtype() && weight.size(0) == part.own.size() &&
                   labels.numel() == x.size(0) && options.rows_at_a_time > 0,
               "vocab_head_loss: input ", to_string(x.shape()), ", weight ", to_string(weight.shape()), ", labels ",
               to_string(labels.shape()), " and ", options.rows_at_a_time, " rows at a time do not fit");
  const HeadInParts head{x.detach(), weight.detach(), options};
  const Tensor parts = empty_parts(x, x.size(0));
  head.visit([&](std::int64_t begin, const Tensor& some, const Tensor& logits) {
    head.find_logits(some, logits);
    find_parts(logits, labels, options.ignore, part, parts, begin);
  });
  const JoinedRows joined = join(parts, {}, x, labels, options.ignore, ranks.columns);
  auto [loss, counted] = mean_over(joined.sums, x, ranks.rows);
  const SavedRows saved{labels, joined.max, joined.sum, counted, options.ignore, part};
  Tape::record(
      "vocab_head_loss", {&x, &weight}, {x, weight, labels, saved.max, saved.sum, saved.counted}, {&loss},
      [head, saved, x = Target(x), weight = Target(weight)](Gradients& gradients, const std::vector<Tensor>& dy) {
        auto dweight = gradients.slot(weight);
        const Tensor dx = gradient_like(head.x);
        head.visit([&](std::int64_t begin, const Tensor& some, const Tensor& logits) {
          head.find_logits(some, logits);
          saved.differentiate(logits, begin, dy[0], logits);
          head.differentiate(some, logits, dx.slice(begin * dx.size(1), some.shape()), dweight.tensor, dweight.mode);
          dweight.mode = Grad::accumulate;
        });
        gradients.give(x, dx);
      });
  return loss;
}

}  // namespace

std::int64_t VocabPart::padding() const {
  return std::clamp<std::int64_t>(own.end - classes, 0, own.size());
}

std::int64_t vocab_group(std::int64_t rows, const Parallel& parallel) {
  const std::int64_t ranks = parallel.tp.size();
  ISOBAR_CHECK(rows >= ranks, "the ", rows, " rows of a table of tokens are fewer than the ", ranks,
               " tensor-parallel ranks that share it");
  std::int64_t group = kRowsOfGroup;
  while (ceil_div(rows, group) < ranks) group /= 2;
  return group;
}

VocabPart vocab_part(std::int64_t rows, std::int64_t classes, const Parallel& parallel) {
  return {parallel.over_tp(rows, vocab_group(rows, parallel)), classes};
}

Tensor vocab_embedding(const Tensor& ids, const Tensor& table, DType out_dtype, const VocabPart& part,
                       const Parallel& parallel) {
  return sum_over(embedding(ids, table, out_dtype, part.own.begin), parallel.tp);
}

Tensor vocab_cross_entropy(const Tensor& logits, const Tensor& labels, std::int32_t ignore, const VocabPart& part,
                           const VocabRanks& ranks) {
  if (ranks.columns.size() == 1 && ranks.rows.size() == 1) return cross_entropy(logits, labels, ignore, part.padding());
  check_logits("vocab_cross_entropy", logits, labels, part);
  const Tensor parts = empty_parts(logits, logits.size(0));
  find_parts(logits, labels, ignore, part, parts, 0);
  const JoinedRows joined = join(parts, {}, logits, labels, ignore, ranks.columns);
  auto [loss, counted] = mean_over(joined.sums, logits, ranks.rows);
  const SavedRows saved{labels, joined.max, joined.sum, counted, ignore, part};
  Tape::record("vocab_cross_entropy", {&logits}, {logits, labels, saved.max, saved.sum, saved.counted}, {&loss},
               [logits, saved](Gradients& gradients, const std::vector<Tensor>& dy) {
                 const Tensor dlogits = gradient_like(logits);
                 saved.differentiate(logits, 0, dy[0], dlogits);
                 gradients.give(logits, dlogits);
               });
  return loss;
}

Tensor vocab_head_loss(const Tensor& x, std::int64_t rows, const Tensor& weight, const Tensor& labels,
                       const HeadLossOptions& options, const VocabPart& part, const Parallel& parallel) {
  return head_loss(enter_branch(x, rows, parallel), weight, labels, options, part, {parallel.tp, parallel.cp});
}

ClassPredictions vocab_predictions(const Tensor& logits, const Tensor& labels, const VocabPart& part,
                                   const Communicator& columns) {
  if (columns.size() == 1) return class_predictions(logits, labels, part.padding());
  check_logits("vocab_predictions", logits, labels, part);
  const Tensor parts = empty_parts(logits, logits.size(0)), best = vector_like(logits, logits.size(0), DType::i32);
  find_parts(logits, labels, kIgnoredLabel, part, parts, 0, best);
  const JoinedRows joined = join(parts, best, logits, labels, kIgnoredLabel, columns);
  return {
      .loss = mean_over(joined.sums, logits, {}).loss, .row_loss = joined.row_loss, .prediction = joined.prediction};
}

}  // namespace isobar
