// dropout and drop_path: the mask of the contract, element by element; its rate; the same mask again on dy; the
// masks of blocks of a whole.
#include "kernels/cases/dropout.h"

#include <algorithm>
#include <limits>

#include "kernels/common/rng.h"
#include "tests/harness/kernel_testing.h"

namespace isobar::testing {
namespace {

const std::vector<DeviceKind> kDevices = all_devices();
constexpr std::uint64_t kSeed = 0x123456789abcdef0ull, kStream = 0xfedcba9800000003ull;

// y[i] = keep(i / group) ? x[i]/(1-p) : 0
template <class Real>
std::array<std::vector<Real>, 1> naive(const Values& x, float p, std::int64_t group) {
  std::array<std::vector<Real>, 1> y;
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const bool keep = random_bits(kSeed, kStream, static_cast<std::uint64_t>(i / group)) >= drop_threshold(p);
    y[0].push_back(keep ? static_cast<Real>(x[i]) / (1 - static_cast<Real>(p)) : Real(0));
  }
  return y;
}

Values inputs(std::int64_t n, DType dtype) {
  Values x = random_values(n, dtype, 1);
  for (std::int64_t i = 10; i < n; i += 97) x[i] = i % 2 == 0 ? std::nan("") : -std::numeric_limits<double>::infinity();
  return x;
}

}  // namespace

TEST_CASE("dropout keeps what the mask says and scales it") {
  for (DType dtype : kFloating)
    for (float p : {0.0f, 0.1f, 0.5f, 0.95f})
      for (std::int64_t n : kRaggedLengths) {
        const Values x = inputs(n, dtype);
        const auto [y] = expected(dtype, [&]<class Real>(Arithmetic<Real>) { return naive<Real>(x, p, 1); });
        INFO(name_of(dtype) << ", p = " << p << ", n = " << n);
        on_devices(kDevices, {dtype}, [&](Workbench& bench) {
          const DropoutArgs sizes = {.n = n, .dtype = dtype, .p = p, .seed = kSeed, .stream = kStream};
          const DropoutArgs a = cases::dropout(sizes, bench.operands({{"x", x, n % 2}}));
          ISOBAR_RUN(bench.device(), dropout, a);
          bench.check("y", {a.y}, y, Norm::ulps);
          const Pointer over = bench.in_out(x);
          const DropoutArgs in_place = cases::dropout(sizes, bench.operands({{"x", over}, {"y", over}}));
          ISOBAR_RUN(bench.device(), dropout, in_place);
          bench.check("y over x", over, y, Norm::ulps);
        });
      }
}

TEST_CASE("drop_path keeps or drops whole samples") {
  for (DType dtype : kFloating)
    for (std::int64_t batch : {0, 1, 2, 67})
      for (std::int64_t n : {0, 1, 33, 1031}) {
        const Values x = inputs(batch * n, dtype);
        const auto [y] = expected(
            dtype, [&]<class Real>(Arithmetic<Real>) { return naive<Real>(x, 0.4f, std::max<std::int64_t>(n, 1)); });
        INFO(name_of(dtype) << ", " << batch << " x " << n);
        on_devices(kDevices, {dtype}, [&](Workbench& bench) {
          const DropPathArgs sizes = {
              .rows = batch, .cols = n, .dtype = dtype, .p = 0.4f, .seed = kSeed, .stream = kStream};
          const DropPathArgs a = cases::drop_path(sizes, bench.operands({{"x", x, n % 2}}));
          ISOBAR_RUN(bench.device(), drop_path, a);
          bench.check("y", {a.y}, y, Norm::ulps);
          const Pointer over = bench.in_out(x);
          const DropPathArgs in_place = cases::drop_path(sizes, bench.operands({{"x", over}, {"y", over}}));
          ISOBAR_RUN(bench.device(), drop_path, in_place);
          bench.check("y over x", over, y, Norm::ulps);
        });
      }
}

namespace {

// What one rank of several may hold of a tensor [batch·tokens, cols]: samples first, first + step, ... of the batch, a
// band of their tokens, of these the rows [begin, end), and some columns.
struct Piece {
  std::int64_t batch, tokens, cols;  // of the whole
  SampleWindow samples;
  std::int64_t token, token_count, begin, end, col, col_count;
  std::int64_t gap_at = 0, gap = 0;

  std::int64_t size() const { return (end - begin) * col_count; }
  RowWindow rows() const {
    return {.before = begin,
            .tokens = token_count,
            .samples = samples,
            .band = {token, tokens},
            .gap_at = gap_at,
            .gap = gap};
  }
  // Of element i of the piece: the sample, and the element of the whole.
  std::int64_t sample(std::int64_t i) const {
    return samples.first + (begin + i / col_count) / token_count * samples.step;
  }
  std::int64_t element(std::int64_t i) const {
    const std::int64_t of_band = (begin + i / col_count) % token_count;
    const std::int64_t of_sample = token + of_band + (of_band >= gap_at ? gap : 0);
    return (sample(i) * tokens + of_sample) * cols + col + i % col_count;
  }
};

// A whole cut into pieces that hold every element once.
std::vector<Piece> cut(std::int64_t batch, std::int64_t tokens, std::int64_t cols, std::int64_t ranks,
                       const std::vector<std::int64_t>& token_cuts, const std::vector<std::int64_t>& col_cuts) {
  std::vector<Piece> pieces;
  for (std::int64_t rank = 0; rank < ranks; ++rank)
    for (std::size_t t = 0; t + 1 < token_cuts.size(); ++t)
      for (std::size_t c = 0; c + 1 < col_cuts.size(); ++c) {
        const std::int64_t band = token_cuts[t + 1] - token_cuts[t], samples = (batch - rank + ranks - 1) / ranks;
        const std::int64_t rows = samples * band, third = (rows + 2) / 3;  // as sequence parallel deals rows
        for (std::int64_t begin = 0; begin < rows; begin += third)
          pieces.push_back({batch,
                            tokens,
                            cols,
                            {rank, ranks},
                            token_cuts[t],
                            band,
                            begin,
                            std::min(begin + third, rows),
                            col_cuts[c],
                            col_cuts[c + 1] - col_cuts[c]});
      }
  return pieces;
}

// Runs `mask` on every piece and checks each element against the mask of the whole: kept as `index` of the piece's
// element says.
template <class Mask, class Index>
void check_pieces(const std::vector<Piece>& pieces, DType dtype, const Mask& mask, const Index& index) {
  std::vector<int> seen(static_cast<std::size_t>(pieces[0].batch * pieces[0].tokens * pieces[0].cols));
  for (const Piece& piece : pieces)
    for (std::int64_t i = 0; i < piece.size(); ++i) ++seen.at(static_cast<std::size_t>(piece.element(i)));
  REQUIRE(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
  on_devices(kDevices, {dtype}, [&](Workbench& bench) {
    for (const Piece& piece : pieces) {
      Values want = constant_values(piece.size(), dtype, 0);
      for (std::int64_t i = 0; i < piece.size(); ++i)
        want[i] =
            random_bits(kSeed, kStream, static_cast<std::uint64_t>(index(piece, i))) >= drop_threshold(0.5f) ? 2 : 0;
      const Values ones = constant_values(piece.size(), dtype, 1);
      const Pointer y = bench.output(piece.size(), dtype, piece.begin % 2);
      mask(bench, piece, {{"x", ones, piece.begin % 2}, {"y", y}});
      INFO("samples from " << piece.samples.first << ", tokens from " << piece.token << ", rows from " << piece.begin
                           << ", columns from " << piece.col);
      bench.check_equal("y", y, want);
    }
  });
}

}  // namespace

TEST_CASE("dropout draws the masks of blocks as those of the whole, element by element") {
  const auto mask = [](DType dtype) {
    return [dtype](Workbench& bench, const Piece& piece, const std::vector<Given>& operands) {
      const DropoutArgs a = cases::dropout(
          {.n = piece.size(),
           .dtype = dtype,
           .p = 0.5f,
           .seed = kSeed,
           .stream = kStream,
           .window = {.cols = piece.col_count, .columns = {piece.col, piece.cols}, .rows = piece.rows()}},
          bench.operands(operands));
      ISOBAR_RUN(bench.device(), dropout, a);
    };
  };
  const auto element = [](const Piece& piece, std::int64_t i) { return piece.element(i); };
  for (const DType dtype : kFloating) {
    check_pieces(cut(5, 7, 45, 2, {0, 3, 7}, {0, 13, 45}), dtype, mask(dtype), element);
    check_pieces(cut(3, 13, 48, 1, {0, 13}, {0, 16, 48}), dtype, mask(dtype), element);
    check_pieces(cut(2, 3, 700, 2, {0, 3}, {0, 3, 331, 700}), dtype, mask(dtype), element);
    check_pieces({{2, 3, 40, {0, 1}, 0, 3, 0, 6, 0, 40}}, dtype, mask(dtype), element);
    // Two ranks with tokens in zig-zag: 0 to 3 and 10 to 12; 4 to 9. The first one's rows are dealt to two.
    check_pieces({{3, 13, 24, {0, 1}, 0, 7, 0, 9, 0, 24, 4, 6},
                  {3, 13, 24, {0, 1}, 0, 7, 9, 21, 0, 24, 4, 6},
                  {3, 13, 24, {0, 1}, 4, 6, 0, 18, 0, 24, 3, 0}},
                 dtype, mask(dtype), element);
  }
}

TEST_CASE("drop_path draws the masks of blocks as those of the whole") {
  const auto mask = [](DType dtype) {
    return [dtype](Workbench& bench, const Piece& piece, const std::vector<Given>& operands) {
      const DropPathArgs a = cases::drop_path({.rows = piece.end - piece.begin,
                                               .cols = piece.col_count,
                                               .dtype = dtype,
                                               .p = 0.5f,
                                               .seed = kSeed,
                                               .stream = kStream,
                                               .window = piece.rows()},
                                              bench.operands(operands));
      ISOBAR_RUN(bench.device(), drop_path, a);
    };
  };
  const auto sample = [](const Piece& piece, std::int64_t i) { return piece.sample(i); };
  for (const DType dtype : kFloating) {
    check_pieces(cut(5, 7, 45, 2, {0, 3, 7}, {0, 13, 45}), dtype, mask(dtype), sample);
    check_pieces(cut(40, 3, 16, 1, {0, 3}, {0, 16}), dtype, mask(dtype), sample);
    check_pieces(cut(3, 90, 25, 3, {0, 1, 90}, {0, 25}), dtype, mask(dtype), sample);
  }
}

TEST_CASE("dropout and drop_path add a number in memory to the stream") {
  constexpr std::int64_t kRows = 50, kCols = 9;
  const Values x = constant_values(kRows * kCols, DType::fp32, 1);
  Values elements = x, rows = x;
  for (std::int64_t i = 0; i < kRows * kCols; ++i) {
    const auto kept = [&](std::int64_t index) {
      return random_bits(kSeed, kStream, static_cast<std::uint64_t>(index)) >= drop_threshold(0.5f) ? 2 : 0;
    };
    elements[i] = kept(i);
    rows[i] = kept(i / kCols);
  }
  on_devices(kDevices, {DType::fp32}, [&](Workbench& bench) {
    const DropoutArgs of_elements = cases::dropout({.n = kRows * kCols,
                                                    .p = 0.5f,
                                                    .seed = kSeed,
                                                    .stream = kStream - kStreamOffset,
                                                    .stream_offset = stream_offset(bench)},
                                                   bench.operands({{"x", x}}));
    ISOBAR_RUN(bench.device(), dropout, of_elements);
    bench.check_equal("dropout", {of_elements.y}, elements);
    const DropPathArgs of_rows = cases::drop_path({.rows = kRows,
                                                   .cols = kCols,
                                                   .p = 0.5f,
                                                   .seed = kSeed,
                                                   .stream = kStream - kStreamOffset,
                                                   .stream_offset = stream_offset(bench)},
                                                  bench.operands({{"x", x}}));
    ISOBAR_RUN(bench.device(), drop_path, of_rows);
    bench.check_equal("drop_path", {of_rows.y}, rows);
  });
}

TEST_CASE("dropout refuses blocks that do not lie in the whole") {
  const auto refuses = [](std::int64_t n, const ElementWindow& window, const std::string& sentence) {
    for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::emulator}) {
      if (kind == DeviceKind::emulator && !ISOBAR_HAS_EMULATOR) continue;
      Workbench bench({.kind = kind});
      const DropoutArgs a = cases::dropout({.n = n, .p = 0.5f, .window = window},
                                           bench.operands({{"x", constant_values(n, DType::fp32, 1)}}));
      CHECK_THROWS_WITH(([&] { ISOBAR_RUN(bench.device(), dropout, a); }()), sentence);
    }
  };
  refuses(10, {.cols = 4}, "dropout: 10 elements are no rows of 4 columns");
  refuses(12, {.cols = 4, .columns = {2, 5}}, "dropout: columns 2 to 5 do not lie in a whole of 5");
  refuses(12, {.cols = 4, .rows = {.tokens = 3, .band = {1, 3}}}, "dropout: tokens 1 to 3 do not lie in a whole of 3");
  refuses(12, {.cols = 4, .rows = {.tokens = 3, .band = {1, 5}, .gap_at = 1, .gap = 2}},
          "dropout: tokens 1 to 5 do not lie in a whole of 5");
  refuses(12, {.cols = 4, .rows = {.tokens = 3, .band = {1, 9}, .gap_at = 4, .gap = 2}},
          "dropout: a gap of 2 tokens before token 4 of 3");
  refuses(12, {.rows = {.before = 1}}, "dropout: the place of a block is given, and not the number of its columns");
  refuses(12, {.cols = 4, .rows = {.tokens = 0}},
          "dropout: a block of rows with 0 tokens a sample and 0 rows before it");
}

TEST_CASE("dropout drops the share that was asked for, differently for every stream") {
  const std::int64_t n = 100000;
  const Values ones = constant_values(n, DType::fp32, 1);
  on_devices(kDevices, {DType::fp32}, [&](Workbench& bench) {
    std::int64_t dropped = 0, both = 0;
    const auto dropped_by = [&](std::uint64_t stream) {
      const DropoutArgs a =
          cases::dropout({.n = n, .p = 0.3f, .seed = 1, .stream = stream}, bench.operands({{"x", ones}}));
      ISOBAR_RUN(bench.device(), dropout, a);
      return bench.read({a.y});
    };
    const Values a = dropped_by(5), b = dropped_by(6);
    for (std::int64_t i = 0; i < n; ++i) dropped += a[i] == 0, both += a[i] == 0 && b[i] == 0;
    CHECK(std::fabs(static_cast<double>(dropped) / n - 0.3) <
          5 * std::sqrt(0.3 * 0.7 / n));  // five standard deviations
    CHECK(std::fabs(static_cast<double>(both) / n - 0.09) < 5 * std::sqrt(0.09 * 0.91 / n));
  });
}

}  // namespace isobar::testing
