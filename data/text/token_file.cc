#include "data/text/token_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string_view>

#include "engine/files/atomic_file.h"
#include "engine/files/folders.h"
#include "kernels/common/check.h"
#include "kernels/common/checked_size.h"

namespace isobar {
namespace {

constexpr std::string_view kIndexMagic("MMIDIDX\0\0", 9), kOldIndexMagic("TNTIDX\0\0", 8);
constexpr std::size_t kNumbersAtOnce = 1 << 16;  // numbers read at once

template <class T>
T number_at(std::span<const std::byte> bytes, std::size_t offset) {
  T number;
  std::memcpy(&number, bytes.data() + offset, sizeof number);
  return number;
}

// Reads `count` numbers from `offset` on, and passes them on in pieces with the number of the first.
template <class T>
void for_each_piece(const FileReader& file, std::uint64_t offset, std::int64_t count,
                    const std::function<void(std::int64_t first, std::span<const T>)>& take) {
  std::vector<T> piece(static_cast<std::size_t>(std::min<std::int64_t>(count, kNumbersAtOnce)));
  for (std::int64_t first = 0; first < count; first += static_cast<std::int64_t>(kNumbersAtOnce)) {
    const auto numbers =
        std::span(piece).first(static_cast<std::size_t>(std::min<std::int64_t>(count - first, kNumbersAtOnce)));
    file.read(offset + static_cast<std::uint64_t>(first) * sizeof(T), std::as_writable_bytes(numbers));
    take(first, numbers);
  }
}

}  // namespace

std::string token_prefix(const std::string& path) {
  for (const char* suffix : {".idx", ".bin"})
    if (path.ends_with(suffix)) return path.substr(0, path.size() - 4);
  return path;
}

std::vector<std::string> token_files_of(const std::string& output_prefix) {
  constexpr std::string_view kEnding = "_document.idx";
  const std::filesystem::path prefix(output_prefix);
  const std::string begin = prefix.filename().string() + "_";
  std::error_code unreadable;
  std::vector<std::string> found;
  for (const std::filesystem::path& entry : entries_of(folder_of(prefix), unreadable)) {
    const std::string name = entry.filename().string();
    if (begin.size() > 1 && name.starts_with(begin) && name.ends_with(kEnding))
      found.push_back(std::filesystem::path(prefix).replace_filename(entry.stem()).string());
  }
  std::ranges::sort(found);
  return found;
}

TokenFile::TokenFile(const std::string& path, std::int64_t vocabulary)
    : prefix_(token_prefix(path)), vocabulary_(vocabulary), index_(prefix_ + ".idx"), tokens_file_(prefix_ + ".bin") {
  read_header();
  read_lengths();
  check_places();
  check_documents();
}

void TokenFile::read_header() {
  const std::string file = prefix_ + ".idx";
  std::array<std::byte, kIndexHeaderBytes> header{};
  const std::size_t held = index_.read_up_to_end(0, header);
  const std::string_view text(reinterpret_cast<const char*>(header.data()), held);
  ISOBAR_CHECK(
      !text.starts_with(kOldIndexMagic), file,
      " is of an older format, which Megatron writes with --data-impl lazy or cached: make it again with mmap");
  ISOBAR_CHECK(text.starts_with(kIndexMagic), file,
               " is not the index of a token file: it does not begin with MMIDIDX");
  ISOBAR_CHECK(held == header.size(), file, " is truncated: it ends within its header");
  const auto version = number_at<std::uint64_t>(header, 9);
  ISOBAR_CHECK(version == 1, file, " has version ", version, "; expected 1");
  type_ = token_type(number_at<std::uint8_t>(header, 17), file);
  const auto sequences = number_at<std::uint64_t>(header, 18), begins = number_at<std::uint64_t>(header, 26);
  constexpr std::uint64_t kMost = std::uint64_t{1} << 48;
  ISOBAR_CHECK(sequences < kMost && begins < kMost, file, " is damaged: its header gives ", sequences,
               " sequences and ", begins, " document boundaries");
  ISOBAR_CHECK(begins > 0, file, " is damaged: its header gives no document boundaries");
  const std::uint64_t bytes = kIndexHeaderBytes + 12 * sequences + 8 * begins;
  const auto described = concat(sequences, " sequences and ", begins - 1, " documents take ", bytes, " bytes");
  ISOBAR_CHECK(index_.size() >= bytes, file, " is truncated: ", described, ", but it has ", index_.size());
  has_modes_ = sequences > 0 && index_.size() == bytes + sequences;
  ISOBAR_CHECK(has_modes_ || index_.size() == bytes, file, " is damaged: ", described, ", but it has ", index_.size());
  lengths_.resize(sequences);
  documents_ = static_cast<std::int64_t>(begins) - 1;
}

void TokenFile::read_lengths() {
  for_each_piece<std::int32_t>(index_, kIndexHeaderBytes, sequences(), [&](std::int64_t first, auto piece) {
    std::copy(piece.begin(), piece.end(), lengths_.begin() + first);
    const auto bad = std::ranges::find_if(piece, [](std::int32_t length) { return length < 0; });
    ISOBAR_CHECK(bad == piece.end(), prefix_, ".idx is damaged: sequence ", first + (bad - piece.begin()), " has ",
                 *bad, " tokens");
    for (const std::int32_t length : piece) tokens_ += length;
  });
}

// Where sequences lie: one after another, or with gaps where files were joined.
void TokenFile::check_places() {
  const auto size = static_cast<std::int64_t>(bytes_of(type_)), held = static_cast<std::int64_t>(tokens_file_.size());
  std::int64_t end = 0;  // of the sequence before
  const std::uint64_t places_at = kIndexHeaderBytes + 4 * lengths_.size();
  for_each_piece<std::int64_t>(index_, places_at, sequences(), [&](std::int64_t first, auto piece) {
    for (std::size_t i = 0; i < piece.size(); ++i) {
      const std::int64_t sequence = first + static_cast<std::int64_t>(i), begin = piece[i];
      const std::int64_t bytes = lengths_[static_cast<std::size_t>(sequence)] * size;
      ISOBAR_CHECK(begin >= end, prefix_, ".idx is damaged: sequence ", sequence, " begins at byte ", begin,
                   ", before the end of the one before it, byte ", end);
      ISOBAR_CHECK(begin <= held && bytes <= held - begin, prefix_,
                   ".bin is truncated or belongs to another index: it has ", held, " bytes, but sequence ", sequence,
                   " of ", prefix_, ".idx ends at byte ", concat(begin, " + ", bytes));
      is_contiguous_ = is_contiguous_ && begin == end;
      end = begin + bytes;
    }
  });
  ISOBAR_CHECK(end == held, prefix_, ".bin belongs to another index: it has ", held, " bytes, but the sequences of ",
               prefix_, ".idx end at byte ", end);
}

void TokenFile::check_documents() const {
  std::int64_t last = 0;
  const std::uint64_t begins_at = kIndexHeaderBytes + 12 * lengths_.size();
  for_each_piece<std::int64_t>(index_, begins_at, documents_ + 1, [&](std::int64_t first, auto piece) {
    for (std::size_t i = 0; i < piece.size(); ++i) {
      const std::int64_t document = first + static_cast<std::int64_t>(i);
      const bool is_right = document == 0 ? piece[i] == 0 : piece[i] >= last;
      ISOBAR_CHECK(is_right && piece[i] <= sequences(), prefix_, ".idx is damaged: document ", document,
                   " begins with sequence ", piece[i], ", behind sequence ", last, " of ", sequences());
      last = piece[i];
    }
  });
  ISOBAR_CHECK(last == sequences(), prefix_, ".idx is damaged: its documents end with sequence ", last, " of ",
               sequences());
}

std::int64_t TokenFile::document_begin(std::int64_t document) const {
  std::int64_t begin = 0;
  index_.read(kIndexHeaderBytes + 12 * lengths_.size() + 8 * static_cast<std::uint64_t>(document),
              std::as_writable_bytes(std::span(&begin, 1)));
  return begin;
}

void TokenFile::read_stored(std::int64_t sequence, std::int64_t first, std::span<std::byte> to) const {
  ISOBAR_CHECK(sequence >= 0 && sequence < sequences(), prefix_, ": sequence ", sequence, " of ", sequences(),
               " is asked for");
  const auto size = static_cast<std::int64_t>(bytes_of(type_)), count = static_cast<std::int64_t>(to.size()) / size;
  const std::int64_t length = lengths_[static_cast<std::size_t>(sequence)];
  ISOBAR_CHECK(first >= 0 && first <= length && count <= length - first, prefix_, ": tokens ", first, " to ",
               first + count, " are asked for of sequence ", sequence, ", which has ", length);
  std::int64_t begin = 0;
  index_.read(kIndexHeaderBytes + 4 * lengths_.size() + 8 * static_cast<std::uint64_t>(sequence),
              std::as_writable_bytes(std::span(&begin, 1)));
  ISOBAR_CHECK(begin >= 0, prefix_, ".idx has changed while it is read");
  tokens_file_.read(static_cast<std::uint64_t>(begin) + static_cast<std::uint64_t>(first * size), to);
}

void TokenFile::read(std::int64_t sequence, std::int64_t first, std::span<std::int32_t> to) const {
  constexpr std::size_t kTokens = 2048;  // at once, on the stack
  std::array<std::byte, kTokens * sizeof(std::int64_t)> stored;
  std::array<std::int64_t, kTokens> numbers;
  for (std::size_t done = 0; done < to.size(); done += kTokens) {
    const std::size_t n = std::min(kTokens, to.size() - done);
    const auto bytes = std::span(stored).first(n * bytes_of(type_));
    read_stored(sequence, first + static_cast<std::int64_t>(done), bytes);
    unpack_tokens(type_, bytes, std::span(numbers).first(n));
    for (std::size_t i = 0; i < n; ++i) {
      ISOBAR_CHECK(numbers[i] >= 0 && numbers[i] < vocabulary_, prefix_, ".bin: token ", numbers[i],
                   " is outside the vocabulary of ", vocabulary_, " (sequence ", sequence, ", place ",
                   first + static_cast<std::int64_t>(done + i), ")");
      to[done + i] = static_cast<std::int32_t>(numbers[i]);
    }
  }
}

}  // namespace isobar
