// Rows of a table, chosen by ids.
#include "kernels/embedding.h"

#include "engine/ops/common.h"

namespace isobar {

Tensor embedding(const Tensor& ids, const Tensor& table, DType out_dtype, std::int64_t first) {
  check_operands("embedding", {{"the tensor of ids", ids}, {"the table", table, 2}});
  ISOBAR_CHECK(ids.dtype() == DType::i32, "embedding: the ids are ", name_of(ids.dtype()), ", not i32");
  const std::int64_t count = ids.numel(), rows = table.size(0), cols = table.size(1);
  Tensor y = Tensor::empty({count, cols}, out_dtype, table.device());
  ISOBAR_RUN(table.device(), embedding_fwd,
             {.ids_count = count,
              .first = first,
              .rows = rows,
              .cols = cols,
              .dtype = table.dtype(),
              .y_dtype = out_dtype,
              .ids = ids.data_as<std::int32_t>(),
              .table = table.data(),
              .y = y.data()},
             current_stream());
  Tape::record("embedding", {&table}, {ids}, {&y},
               [ids, table = Target(table), first, rows, cols](Gradients& gradients, const std::vector<Tensor>& dy) {
                 const auto dtable = gradients.slot(table);
                 if (!dtable) return;
                 ISOBAR_CHECK(dtable.tensor.dtype() == accumulator_of(dy[0].dtype()), "embedding: the gradient of ",
                              name_of(dy[0].dtype()), " cannot be added up in a table of ",
                              name_of(dtable.tensor.dtype()));
                 ISOBAR_RUN(ids.device(), embedding_bwd,
                            {.ids_count = ids.numel(),
                             .first = first,
                             .rows = rows,
                             .cols = cols,
                             .y_dtype = dy[0].dtype(),
                             .ids = ids.data_as<std::int32_t>(),
                             .dy = dy[0].data(),
                             .dtable = dtable.tensor.data(),
                             .mode = dtable.mode},
                            current_stream());
               });
  return y;
}

}  // namespace isobar
