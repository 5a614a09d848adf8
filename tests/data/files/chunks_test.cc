// Chunks that a box meets, the cache of decoded ones, and the byte shuffle that formats with chunks share.
#include "data/files/chunks.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "data/files/shuffle.h"
#include "tests/harness/testing.h"

using namespace isobar;

namespace {

using Places = std::vector<std::int64_t>;

std::vector<std::byte> counted(std::size_t bytes) {
  std::vector<std::byte> values(bytes);
  for (std::size_t i = 0; i < bytes; ++i) values[i] = static_cast<std::byte>(i);
  return values;
}

}  // namespace

TEST_CASE("chunks: as many as cover an array, and the rows of each") {
  CHECK(chunk_grid(Places{6, 7, 1, 0}, Places{3, 3, 5, 2}) == Places{2, 3, 1, 0});
  const ChunkGrid grid({7, 5}, {3, 2}, 4, "f");
  CHECK(grid.chunks() == 9);
  CHECK(grid.chunk_bytes() == 24);
  using Rows = std::pair<std::int64_t, std::int64_t>;
  CHECK(grid.rows_of(0) == Rows{0, 2});
  CHECK(grid.rows_of(2) == Rows{0, 2});
  CHECK(grid.rows_of(3) == Rows{3, 5});
  CHECK(grid.rows_of(8) == Rows{6, 6});  // the last one reaches beyond the array
  CHECK_THROWS_WITH(ChunkGrid({1}, {std::int64_t{1} << 62}, 4, "a.h5: 'x'"),
                    "a.h5: 'x', a chunk, has an impossible size: 4611686018427387904 x 4");
}

TEST_CASE("chunks: a box meets them row-major, and each knows its part") {
  const ChunkGrid grid({7, 5}, {3, 2}, 4, "f");
  std::vector<Places> met;  // row, column, index, first byte in the chunk, position in the box, values
  grid.for_each_part(Places{2, 1}, Places{2, 2}, [&](const ChunkPart& part) {
    std::int64_t values = 1;
    for (const CopyAxis& axis : part.axes) values *= axis.count;
    met.push_back({part.at[0], part.at[1], part.index, part.from, part.to, values});
  });
  CHECK(met == std::vector<Places>{
                   {0, 0, 0, 4 * 5, 0, 1}, {0, 1, 1, 4 * 4, 1, 1}, {1, 0, 3, 4 * 1, 2, 1}, {1, 1, 4, 0, 3, 1}});
  met.clear();
  grid.for_each_part(Places{3, 2}, Places{3, 2}, [&](const ChunkPart& part) { met.push_back(part.at); });
  CHECK(met == std::vector<Places>{{1, 1}});  // one whole chunk, and none beside it
}

TEST_CASE("chunks: decoded ones are kept as long as the budget lasts, and a chunk that has no room spends nothing") {
  const auto budget = std::make_shared<std::atomic<std::int64_t>>(10);
  ChunkCache cache(budget);
  int decoded = 0;
  const auto get = [&](std::int64_t index, std::size_t bytes) {
    const auto chunk = cache.get(index, [&] {
      ++decoded;
      return counted(bytes);
    });
    CHECK((*chunk == counted(bytes)));
    return decoded;
  };
  CHECK(get(3, 6) == 1);
  CHECK(get(3, 6) == 1);
  CHECK(budget->load() == 4);
  CHECK(get(4, 5) == 2);  // no room
  CHECK(get(4, 5) == 3);
  CHECK(budget->load() == 4);
  CHECK(get(5, 4) == 4);  // to the last byte
  CHECK(get(5, 4) == 4);
  CHECK(budget->load() == 0);
  CHECK(get(6, 0) == 5);  // what does not exist takes no room, and is looked for once
  CHECK(get(6, 0) == 5);
  CHECK(get(3, 6) == 5);

  ChunkCache none(nullptr);
  for (int times = 1; times <= 2; ++times)
    none.get(0, [&] {
      ++decoded;
      return counted(1);
    });
  CHECK(decoded == 7);
}

TEST_CASE("shuffle: bytes of elements of every width, and those behind the last whole one stay") {
  const std::vector<std::byte> plain = counted(29);
  for (const std::size_t element : {1, 2, 3, 4, 5, 8, 16, 29, 30}) {
    INFO(element);
    const std::size_t elements = plain.size() / element;
    std::vector<std::byte> mixed(3), back(50);
    shuffle(plain, element, mixed);
    REQUIRE(mixed.size() == plain.size());
    for (std::size_t i = 0; i < elements; ++i)
      for (std::size_t k = 0; k < element; ++k) CHECK((mixed[k * elements + i] == plain[i * element + k]));
    for (std::size_t i = elements * element; i < plain.size(); ++i) CHECK((mixed[i] == plain[i]));
    unshuffle(mixed, element, back);
    CHECK((back == plain));
  }
}
