// embedding: rows of a table and their gradient, against the formula; ids of other ranks, frequent ids, finite
// differences.
#include "kernels/cases/embedding.h"

#include "tests/harness/kernel_testing.h"

namespace isobar::testing {
namespace {

const std::vector<DeviceKind> kDevices = all_devices();

struct Case {
  std::int64_t ids_count, first, rows, cols;
  DType dtype, y_dtype;
  std::vector<std::int32_t> ids = {};

  Values id_values() const { return values_of({ids.begin(), ids.end()}, DType::i32); }
  std::int64_t row(std::int64_t m) const { return ids[static_cast<std::size_t>(m)] - first; }
  bool has_row(std::int64_t m) const { return row(m) >= 0 && row(m) < rows; }
};

// Ids that come often and ids that never come; some below and above the table's rows.
Case filled(Case c) {
  for (std::int64_t m = 0; m < c.ids_count; ++m) {
    const std::int64_t anywhere = (m * 7919 + 13) % (c.rows + 3) - 1, often = c.rows / 2;
    c.ids.push_back(static_cast<std::int32_t>(c.first + (m % 3 == 1 ? often : anywhere)));
  }
  return c;
}

std::string name_of_case(const Case& c) {
  return std::string(name_of(c.dtype)) + " to " + name_of(c.y_dtype) + ", " + std::to_string(c.ids_count) +
         " ids, rows " + std::to_string(c.first) + " + " + std::to_string(c.rows) + " x " + std::to_string(c.cols);
}

template <class F>
void for_each_case(const F& f) {
  for (DType dtype : kFloating)
    for (DType y_dtype : {dtype, DType::fp32}) {
      if (y_dtype != dtype && !is_16_bit(dtype)) continue;
      for (std::int64_t cols : {1, 33, 132})
        for (std::int64_t ids : {0, 1, 67})
          for (std::int64_t rows : {1, 19}) f(filled({ids, ids % 2 * 40, rows, cols, dtype, y_dtype}));
      f(filled({300, 0, 65, 128, dtype, y_dtype}));  // ids in two portions of a block
      f(filled({40, 17, 8194, 3, dtype, y_dtype}));  // a block with many rows
    }
}

template <class Real>
std::array<std::vector<Real>, 1> naive_fwd(const Case& c, const Values& table) {
  std::array<std::vector<Real>, 1> y;
  for (std::int64_t m = 0; m < c.ids_count; ++m)
    for (std::int64_t i = 0; i < c.cols; ++i)
      y[0].push_back(c.has_row(m) ? static_cast<Real>(table[c.row(m) * c.cols + i]) : Real(0));
  return y;
}

// before: what is added to; null: overwritten
template <class Real>
std::array<std::vector<Real>, 1> naive_bwd(const Case& c, const Values& dy, const Values* before) {
  std::array<std::vector<Real>, 1> dtable;
  for (std::int64_t i = 0; i < c.rows * c.cols; ++i)
    dtable[0].push_back(before != nullptr ? static_cast<Real>((*before)[i]) : Real(0));
  for (std::int64_t m = 0; m < c.ids_count; ++m)
    for (std::int64_t i = 0; i < c.cols && c.has_row(m); ++i)
      dtable[0][static_cast<std::size_t>(c.row(m) * c.cols + i)] += static_cast<Real>(dy[m * c.cols + i]);
  return dtable;
}

EmbeddingFwdArgs forward_arguments(const Case& c, const Values& table, Workbench& bench, std::int64_t shift = 0) {
  return cases::embedding_fwd({.ids_count = c.ids_count,
                               .first = c.first,
                               .rows = c.rows,
                               .cols = c.cols,
                               .dtype = c.dtype,
                               .y_dtype = c.y_dtype},
                              bench.operands({{"ids", c.id_values()}, {"table", table, shift}}));
}

EmbeddingBwdArgs backward_arguments(const Case& c, const Values& dy, const Values* before, Workbench& bench,
                                    std::int64_t shift = 0) {
  const EmbeddingBwdArgs sizes{.ids_count = c.ids_count,
                               .first = c.first,
                               .rows = c.rows,
                               .cols = c.cols,
                               .y_dtype = c.y_dtype,
                               .mode = before != nullptr ? Grad::accumulate : Grad::overwrite};
  if (before == nullptr)
    return cases::embedding_bwd(sizes, bench.operands({{"ids", c.id_values()}, {"dy", dy, shift}}));
  return cases::embedding_bwd(sizes, bench.operands({{"ids", c.id_values()}, {"dy", dy, shift}, {"dtable", *before}}));
}

}  // namespace

TEST_CASE("embedding_fwd gives the rows of the ids, and zeros for ids without a row") {
  for_each_case([](const Case& c) {
    Values table = random_values(c.rows * c.cols, c.dtype, 1);
    const auto [y] = expected(c.dtype, [&]<class Real>(Arithmetic<Real>) { return naive_fwd<Real>(c, table); });
    INFO(name_of_case(c));
    on_devices(kDevices, {c.dtype}, [&](Workbench& bench) {
      const EmbeddingFwdArgs a = forward_arguments(c, table, bench, c.ids_count % 2);
      ISOBAR_RUN(bench.device(), embedding_fwd, a);
      bench.check("y", {a.y}, y, Norm::ulps);
    });
  });
}

TEST_CASE("embedding_bwd adds up the rows of each id, whatever was there before") {
  for_each_case([](const Case& c) {
    const Values dy = random_values(c.ids_count * c.cols, c.y_dtype, 2);
    const Values before = random_values(c.rows * c.cols, accumulator_of(c.y_dtype), 3);
    for (const Values* old : {static_cast<const Values*>(nullptr), &before}) {
      const auto [dtable] =
          expected(c.y_dtype, [&]<class Real>(Arithmetic<Real>) { return naive_bwd<Real>(c, dy, old); });
      INFO(name_of_case(c) << (old != nullptr ? ", accumulated" : ""));
      on_devices(kDevices, {c.y_dtype}, [&](Workbench& bench) {
        const EmbeddingBwdArgs a = backward_arguments(c, dy, old, bench, c.ids_count % 2);
        ISOBAR_RUN(bench.device(), embedding_bwd, a);
        bench.check("dtable", {a.dtable}, dtable);
      });
    }
  });
}

TEST_CASE("embedding_bwd adds in the order of the ids: the same bits on every device and with any threads") {
  const Case c = filled({400, 0, 13, 37, DType::fp32, DType::fp32});
  const Values dy = random_values(c.ids_count * c.cols, DType::fp32, 4);
  std::vector<float> sums(static_cast<std::size_t>(c.rows * c.cols));
  for (std::int64_t m = 0; m < c.ids_count; ++m)
    for (std::int64_t i = 0; i < c.cols && c.has_row(m); ++i)
      sums[static_cast<std::size_t>(c.row(m) * c.cols + i)] +=
          static_cast<float>(dy.v[static_cast<std::size_t>(m * c.cols + i)]);
  const Values exact = values_of({sums.begin(), sums.end()}, DType::fp32);
  on_devices(kDevices, {DType::fp32}, [&](Workbench& bench) {
    const EmbeddingBwdArgs a = backward_arguments(c, dy, nullptr, bench);
    ISOBAR_RUN(bench.device(), embedding_bwd, a);
    bench.check_equal("dtable", {a.dtable}, exact);
  });
}

TEST_CASE("embedding_bwd does not read the gradient of an id without a row") {
  Case c = filled({20, 5, 6, 10, DType::fp32, DType::fp32});
  Values dy = random_values(c.ids_count * c.cols, DType::fp32, 5);
  Values clean = dy;
  int outside = 0;
  for (std::int64_t m = 0; m < c.ids_count; ++m) {
    if (c.has_row(m)) continue;
    ++outside;
    for (std::int64_t i = 0; i < c.cols; ++i) dy[m * c.cols + i] = std::nan(""), clean[m * c.cols + i] = 0;
  }
  REQUIRE(outside > 2);
  const auto [dtable] =
      expected(DType::fp32, [&]<class Real>(Arithmetic<Real>) { return naive_bwd<Real>(c, clean, nullptr); });
  on_devices(kDevices, {DType::fp32}, [&](Workbench& bench) {
    const EmbeddingBwdArgs a = backward_arguments(c, dy, nullptr, bench);
    ISOBAR_RUN(bench.device(), embedding_bwd, a);
    bench.check("dtable", {a.dtable}, dtable);
  });
}

TEST_CASE("embedding_bwd is the gradient of embedding_fwd") {
  const Case c = filled({9, 2, 5, 4, DType::fp64, DType::fp64});
  const Values table = random_values(c.rows * c.cols, DType::fp64, 6);
  const Values cotangent = random_values(c.ids_count * c.cols, DType::fp64, 7);
  Workbench bench({});
  const EmbeddingBwdArgs backward = backward_arguments(c, cotangent, nullptr, bench);
  cpu::embedding_bwd(backward);
  check_gradient("dtable", table, bench.read({backward.dtable}), [&](const Values& moved) {
    Workbench inner({});
    const EmbeddingFwdArgs a = forward_arguments(c, moved, inner);
    cpu::embedding_fwd(a);
    const Values y = inner.read({a.y});
    double loss = 0;
    for (std::int64_t i = 0; i < y.size(); ++i)
      loss += y.v[static_cast<std::size_t>(i)] * cotangent.v[static_cast<std::size_t>(i)];
    return loss;
  });
}

TEST_CASE("embedding_fwd refuses rows in a dtype that they cannot be given in") {
  const Case c = filled({3, 0, 2, 4, DType::fp32, DType::bf16});
  on_devices(kDevices, {DType::fp32}, [&](Workbench& bench) {
    const EmbeddingFwdArgs a = forward_arguments(c, random_values(8, DType::fp32, 1), bench);
    const auto run = [&] { ISOBAR_RUN(bench.device(), embedding_fwd, a); };
    CHECK_THROWS_WITH(run(), ContainsSubstring("embedding_fwd: rows of fp32 cannot be given as bf16"));
  });
}

}  // namespace isobar::testing
