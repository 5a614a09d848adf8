#include "data/files/array_copy.h"

#include <algorithm>

namespace isobar {
namespace {

// Systems read whole pages, so that a gap of less costs no more than a further call.
constexpr std::int64_t kMaxGap = 4096;
// Rows that are read together, in bytes: they stay in a processor's own cache until they are copied.
constexpr std::int64_t kMaxTogether = std::int64_t{1} << 18;

// A buffer that each thread keeps.
std::span<std::byte> row_buffer(std::int64_t bytes) {
  thread_local std::vector<std::byte> buffer;
  const auto size = static_cast<std::size_t>(bytes);
  if (buffer.size() < size) buffer.resize(size);
  return std::span(buffer).first(size);
}

// Bytes from the first element of a box to the end of the last.
std::int64_t extent_of(std::span<const CopyAxis> axes, std::int64_t element) {
  std::int64_t extent = element;
  for (const CopyAxis& axis : axes) extent += (axis.count - 1) * axis.from;
  return extent;
}

// The axes from the returned one on are read together: the gaps between their rows are small.
std::size_t first_read_together(std::span<const CopyAxis> axes, std::int64_t element) {
  std::size_t first = axes.size() - 1;
  for (; first > 0; --first) {
    const std::int64_t extent = extent_of(axes.subspan(first), element), gap = axes[first - 1].from - extent;
    if (gap > kMaxGap || extent > kMaxTogether) break;
  }
  return first;
}

}  // namespace

std::vector<CopyAxis> from_in_bytes(std::vector<CopyAxis> axes, std::int64_t element) {
  for (CopyAxis& axis : axes) axis.from *= element;
  return axes;
}

void copy_from(const std::byte* array, std::span<const CopyAxis> axes, std::int64_t from, std::int64_t to,
               const Sink& sink) {
  for_each_position(axes.first(axes.size() - 1), from, to, [&](std::int64_t run, std::int64_t position) {
    sink.put(array + run, axes.back().count, position);
  });
}

void ArrayInFile::copy(std::span<const CopyAxis> axes, std::int64_t from, std::int64_t to, const Sink& sink) const {
  const std::size_t together = first_read_together(axes, sink.element());
  for_each_position(axes.first(together), from, to, [&](std::int64_t first, std::int64_t position) {
    read(axes.subspan(together), first, position, sink);
  });
}

// As many positions of the first axis at once as kMaxTogether allows.
void ArrayInFile::read(std::span<const CopyAxis> axes, std::int64_t from, std::int64_t to, const Sink& sink) const {
  const CopyAxis& axis = axes[0];
  if (axes.size() == 1 && same_bytes(sink.format, sink.dtype))
    return pull(from, {sink.at(to), static_cast<std::size_t>(axis.count * sink.element())});
  const std::int64_t extent = extent_of(axes.subspan(1), sink.element());
  const std::int64_t at_once = 1 + std::max<std::int64_t>(kMaxTogether - extent, 0) / axis.from;
  std::vector<CopyAxis> part(axes.begin(), axes.end());
  for (std::int64_t i = 0; i < axis.count; i += at_once) {
    part[0].count = std::min(at_once, axis.count - i);
    const std::span<std::byte> bytes = row_buffer(extent_of(part, sink.element()));
    pull(from + i * axis.from, bytes);
    copy_from(bytes.data(), part, 0, to + i * axis.to, sink);
  }
}

void ArrayInFile::pull(std::int64_t from, std::span<std::byte> bytes) const {
  file_.read(offset_ + static_cast<std::uint64_t>(from), bytes, ends_);
}

}  // namespace isobar
