#include "kernels/common/window.h"

#include "kernels/common/check.h"

namespace isobar {

Span checked_window(const char* kernel, const char* dimension, const Span& span, std::int64_t count) {
  ISOBAR_CHECK(span.total != 0 || span.first == 0, kernel, ": the block's ", dimension, " begin at ", span.first,
               " of a whole whose size is not given");
  const std::int64_t total = span.total == 0 ? count : span.total;
  ISOBAR_CHECK(span.first >= 0 && span.first <= total - count, kernel, ": ", dimension, " ", span.first, " to ",
               span.first + count - 1, " do not lie in a whole of ", total);
  return {span.first, total};
}

SampleWindow checked_window(const char* kernel, const SampleWindow& samples) {
  ISOBAR_CHECK(samples.first >= 0 && samples.step >= 1, kernel, ": samples ", samples.first, ", ",
               samples.first + samples.step, ", ... are not those of a batch");
  return samples;
}

RowWindow checked_window(const char* kernel, const RowWindow& rows) {
  ISOBAR_CHECK(rows.before >= 0 && rows.tokens >= 1, kernel, ": a block of rows with ", rows.tokens,
               " tokens a sample and ", rows.before, " rows before it");
  ISOBAR_CHECK(rows.gap >= 0 && rows.gap_at >= 0 && rows.gap_at <= rows.tokens, kernel, ": a gap of ", rows.gap,
               " tokens before token ", rows.gap_at, " of ", rows.tokens);
  return {.before = rows.before,
          .tokens = rows.tokens,
          .samples = checked_window(kernel, rows.samples),
          .band = checked_window(kernel, "tokens", rows.band, rows.tokens + rows.gap),
          .gap_at = rows.gap_at,
          .gap = rows.gap};
}

ElementWindow checked_window(const char* kernel, const ElementWindow& window, std::int64_t n) {
  const ElementWindow w{
      .cols = window.cols,
      .columns = checked_window(kernel, "columns", window.columns, window.cols),
      .rows = checked_window(kernel, window.rows),
  };
  const bool all_columns = w.columns.total == w.cols;
  const bool all_rows =
      w.rows.before == 0 && w.rows.samples.first == 0 && w.rows.samples.step == 1 && w.rows.band.total == w.rows.tokens;
  if (w.cols == 0) {
    ISOBAR_CHECK(all_columns && all_rows, kernel, ": the place of a block is given, and not the number of its columns");
    return w;
  }
  ISOBAR_CHECK(w.cols > 0 && n % w.cols == 0, kernel, ": ", n, " elements are no rows of ", w.cols, " columns");
  return all_columns && all_rows ? ElementWindow{} : w;
}

}  // namespace isobar
