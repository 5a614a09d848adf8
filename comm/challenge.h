// Rank 0 and another rank prove to each other that they belong to one job. Both know the job's key, and neither sends
// it: each answers the other's random number with a keyed hash (HMAC-SHA256) over both numbers.
//
//   rank  -> rank 0   kGreeting, random number of the rank
//   rank 0 -> rank    random number of rank 0, its proof
//   rank  -> rank 0   its proof, then sealed messages (comm/messages.h)
//
// Each part has a fixed length and is checked only when it is complete. Later messages are sealed with keys of this one
// connection: a third party between the two ranks can neither read nor change them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace isobar {

inline constexpr std::string_view kGreeting = "isobar meeting 2\n";
inline constexpr std::size_t kRandomBytes = 16;
inline constexpr std::size_t kProofBytes = 32;
inline constexpr std::size_t kOpeningBytes = kGreeting.size() + kRandomBytes;  // first part of the rank
inline constexpr std::size_t kAnswerBytes = kRandomBytes + kProofBytes;        // answer of rank 0
inline constexpr std::size_t kSealBytes = 16;

// One direction of a connection. Messages are opened in the order in which they were sealed.
class Seal {
 public:
  explicit Seal(std::string key = {}) : key_(std::move(key)) {}
  std::string close(std::string_view bytes);  // kSealBytes longer
  // Throws Error if these bytes were changed, or are not the next message.
  std::string open(std::string_view sealed);

 private:
  std::string mask(std::string_view bytes) const;  // XOR with a key stream; twice restores the bytes
  std::string proof_of(std::string_view bytes) const;

  std::string key_;
  std::uint64_t number_ = 0;
};

// What both ends know: the job's key and the two random numbers.
class Challenge {
 public:
  Challenge(std::string key, std::string random_of_rank, std::string random_of_first);

  std::string proof_of_first() const { return hash("rank 0 answers"); }
  std::string proof_of_rank() const { return hash("a rank answers"); }
  Seal to_first() const { return Seal(hash("to rank 0")); }
  Seal to_rank() const { return Seal(hash("from rank 0")); }

 private:
  std::string hash(std::string_view purpose) const;

  std::string key_, randoms_;
};

}  // namespace isobar
