#include "comm/agreement.h"

#include <cstdint>
#include <vector>

#include "engine/files/checksum.h"
#include "kernels/common/check.h"

namespace isobar {

void check_agreement(const Communicator& world, std::span<const Finding> findings) {
  if (world.size() == 1) return;
  std::vector<std::uint64_t> mine;
  for (const Finding& finding : findings) mine.push_back(xxh64(std::as_bytes(std::span(finding.value))));
  std::vector<std::uint64_t> all(mine.size() * static_cast<std::size_t>(world.size()));
  world.all_gather_bytes(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  for (std::size_t i = 0; i < findings.size(); ++i)
    for (int rank = 1; rank < world.size(); ++rank)
      ISOBAR_CHECK(all[static_cast<std::size_t>(rank) * mine.size() + i] == all[i], "rank ", rank, " has ",
                   findings[i].what, " other than rank 0's: the same path may lead elsewhere on its host");
}

}  // namespace isobar
