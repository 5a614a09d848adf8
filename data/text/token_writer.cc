#include "data/text/token_writer.h"

#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "data/text/token_file.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr std::size_t kPendingBytes = 1 << 20;

std::filesystem::path folder_of_prefix(const std::string& prefix) {
  const std::filesystem::path folder = std::filesystem::path(prefix).parent_path();
  return folder.empty() ? "." : folder;
}

std::string checked_prefix(const std::string& prefix, ExistingFile existing) {
  ISOBAR_CHECK(existing == ExistingFile::replaced || !std::filesystem::exists(prefix + ".idx"), prefix,
               ".idx exists; --overwrite replaces it");
  return prefix;
}

// Collects numbers of one type, and writes them in large pieces.
template <class T>
class NumberWriter {
 public:
  explicit NumberWriter(AtomicFile& file) : file_(file) {}
  void add(T number) {
    numbers_.push_back(number);
    if (numbers_.size() * sizeof(T) >= kPendingBytes) flush();
  }
  void flush() {
    file_.write(std::as_bytes(std::span(numbers_)));
    numbers_.clear();
  }

 private:
  AtomicFile& file_;
  std::vector<T> numbers_;
};

}  // namespace

TokenWriter::TokenWriter(const std::string& prefix, TokenType type, ExistingFile existing)
    : prefix_(checked_prefix(prefix, existing)),
      type_(type),
      tokens_file_(prefix + ".bin"),
      index_file_(prefix + ".idx"),
      lengths_(folder_of_prefix(prefix)),
      begins_(folder_of_prefix(prefix)) {
  begins_.append(0);
}

void TokenWriter::write_tokens(bool all) {
  if (!all && pending_.size() < kPendingBytes) return;
  tokens_file_.write(pending_);
  pending_.clear();
}

void TokenWriter::add_sequence(std::span<const std::int32_t> tokens) {
  pack_tokens(type_, tokens, pending_);
  length_ = static_cast<std::int64_t>(tokens.size());
  end_stored_sequence();
}

void TokenWriter::add_stored(std::span<const std::byte> tokens) {
  pending_.insert(pending_.end(), tokens.begin(), tokens.end());
  length_ += static_cast<std::int64_t>(tokens.size() / bytes_of(type_));
  write_tokens(false);
}

void TokenWriter::end_stored_sequence() {
  ISOBAR_CHECK(length_ <= std::numeric_limits<std::int32_t>::max(), prefix_, ".idx: a sequence of ", length_,
               " tokens is longer than the format allows");
  lengths_.append(length_);
  tokens_ += length_;
  length_ = 0;
  write_tokens(false);
}

void TokenWriter::end_document() {
  begins_.append(lengths_.count());
}

void TokenWriter::write_index() {
  std::array<std::byte, kIndexHeaderBytes> header{};
  const auto put = [&](std::size_t offset, const void* from, std::size_t bytes) {
    std::memcpy(header.data() + offset, from, bytes);
  };
  const std::uint64_t version = 1, sequences = static_cast<std::uint64_t>(lengths_.count()),
                      begins = static_cast<std::uint64_t>(begins_.count());
  const auto type = static_cast<std::uint8_t>(type_);
  put(0, "MMIDIDX", 7);
  put(9, &version, 8);
  put(17, &type, 1);
  put(18, &sequences, 8);
  put(26, &begins, 8);
  index_file_.write(std::as_bytes(std::span(header)));
  NumberWriter<std::int32_t> lengths(index_file_);
  lengths_.for_each_piece([&](auto piece) {
    for (const std::int64_t length : piece) lengths.add(static_cast<std::int32_t>(length));
  });
  lengths.flush();
  NumberWriter<std::int64_t> places(index_file_);
  std::int64_t place = 0;
  lengths_.for_each_piece([&](auto piece) {
    for (const std::int64_t length : piece) {
      places.add(place);
      place += length * static_cast<std::int64_t>(bytes_of(type_));
    }
  });
  begins_.for_each_piece([&](auto piece) {
    for (const std::int64_t begin : piece) places.add(begin);
  });
  places.flush();
}

void TokenWriter::finish(TokenFacts facts) {
  write_tokens(true);
  write_index();
  facts.documents = begins_.count() - 1;
  facts.tokens = tokens_;
  // An index of other tokens must not stand beside the new ones.
  if (std::filesystem::remove(prefix_ + ".idx")) flush_to_disk(folder_of_prefix(prefix_));
  tokens_file_.commit();
  write_token_facts(prefix_, facts);
  index_file_.commit();
}

}  // namespace isobar
