// Parameters that lie channels-last in memory: files, initial values and whatever reads them keep PyTorch's order.
#include "engine/memory_order.h"

#include <string>
#include <vector>

#include "comm/whole_tensors.h"
#include "engine/files/reader.h"
#include "engine/parameters.h"
#include "kernels/common/check.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;

namespace {

constexpr auto kLast = MemoryOrder::channels_last, kAsInFiles = MemoryOrder::as_in_files;
const Shape kShape = {5, 3, 2, 4};  // [Co, Ci, K0, K1] in files

Parameters network(MemoryOrder order, DType activation = DType::fp32, Shard rows = {}) {
  Parameters parameters;
  const Init normal{.kind = Init::Kind::normal, .value = 1}, uniform{.kind = Init::Kind::uniform, .value = 0.5};
  const Sharing sharing = rows.end < 0 ? Sharing::copy : Sharing::shard;
  parameters.add({.names = {"conv.bias"}, .shape = {5}, .init = uniform});
  parameters.add({.names = {"conv.weight"},
                  .shape = kShape,
                  .init = normal,
                  .decay = true,
                  .compute_copy = true,
                  .sharing = sharing,
                  .shard = rows,
                  .order = order});
  parameters.add({.names = {"up.a", "up.b"}, .shape = {2, 3, 4}, .init = uniform, .decay = true, .order = order});
  parameters.allocate(activation, Device{}, 11);
  return parameters;
}

// [Co, K0, K1, Ci] of [Co, Ci, K0, K1], by loops.
std::vector<double> channels_last(const std::vector<double>& in_files, const Shape& shape) {
  std::vector<double> values;
  for (std::int64_t o = 0; o < shape[0]; ++o)
    for (std::int64_t a = 0; a < shape[2]; ++a)
      for (std::int64_t b = 0; b < shape[3]; ++b)
        for (std::int64_t i = 0; i < shape[1]; ++i)
          values.push_back(in_files[static_cast<std::size_t>(((o * shape[1] + i) * shape[2] + a) * shape[3] + b)]);
  return values;
}

void clear(const Parameters& parameters) {
  Tensor weights = parameters.weights();
  weights.set_values(std::vector<double>(static_cast<std::size_t>(weights.numel()), 0));
}

void write(const std::string& path, const Parameters& parameters) {
  write_whole(path, parameters, {{"w.", parameters.weights(), {}}}, {}, {});
}

}  // namespace

TEST_CASE("memory order: axis 1 of the file comes last") {
  CHECK(shape_in_memory({5, 3, 2, 4}, kLast) == Shape{5, 2, 4, 3});
  CHECK(shape_in_memory({5, 3, 2}, kLast) == Shape{5, 2, 3});
  CHECK(shape_in_memory({5, 3}, kLast) == Shape{5, 3});
  CHECK(shape_in_memory({5, 3, 2, 4}, kAsInFiles) == Shape{5, 3, 2, 4});

  Tensor in_files = Tensor::empty({kShape}, DType::fp64, Device{});
  for (std::int64_t i = 0; i < in_files.numel(); ++i) in_files.data_as<double>()[i] = static_cast<double>(i);
  const Tensor in_memory = from_file_order(in_files, kShape, kLast);
  CHECK(in_memory.to_vector() == channels_last(in_files.to_vector(), kShape));
  for (std::int64_t i = 0; i < in_memory.numel(); ++i)
    CHECK(in_memory.data_as<double>()[i] == static_cast<double>(position_in_file(kShape, kLast, i)));
  CHECK(to_file_order(in_memory, kShape, kLast).to_vector() == in_files.to_vector());
  CHECK(from_file_order(in_files, kShape, kAsInFiles).data() == in_files.data());
  const Tensor rows = in_files.slice(2 * 24, {48});  // a part: whole rows of axis 0
  CHECK(from_file_order(rows, kShape, kLast).to_vector() == in_memory.slice(2 * 24, {48}).to_vector());
}

TEST_CASE("memory order: initial values are those of the file's order, and products see the memory's shape") {
  for (const DType activation : {DType::fp32, DType::bf16, DType::fp64}) {
    const Parameters plain = network(kAsInFiles, activation), last = network(kLast, activation);
    CHECK(last.get(1).shape() == Shape{5, 2, 4, 3});
    CHECK(last.get(2).shape() == Shape{4, 4, 3});
    const NamedParameter& weight = last.named()[1];
    CHECK(weight.shape == Shape{5, 2, 4, 3});
    CHECK(weight.full_shape == kShape);
    const std::vector<double> expected = channels_last(plain.get(1).to_vector(), kShape);
    CHECK(last.get(1).to_vector() == expected);
    CHECK(last.count() == plain.count());
    for (const std::size_t stacked : {2, 3})
      CHECK(last.weight(last.named()[stacked]).to_vector() ==
            channels_last(plain.weight(plain.named()[stacked]).to_vector(), {2, 3, 4, 1}));
    const Parameters part = network(kLast, activation, {.begin = 1, .end = 4});
    CHECK(part.get(1).to_vector() == std::vector<double>(expected.begin() + 24, expected.begin() + 96));
  }
}

TEST_CASE("memory order: files do not depend on it, and either order reads the other's") {
  const testing::TemporaryFolder folder;
  for (const DType activation : {DType::fp32, DType::fp64}) {
    const Parameters plain = network(kAsInFiles, activation), last = network(kLast, activation);
    write(folder / "plain", plain);
    write(folder / "last", last);
    CHECK((read_file(folder / "plain") == read_file(folder / "last")));

    const Parameters read = network(kLast, activation);
    clear(read);
    read_flat(folder / "plain", read, {{"w.", read.weights(), {}}});
    CHECK(read.weights().to_vector() == last.weights().to_vector());
  }
}

TEST_CASE("memory order: any range of the flat buffer is read from a file") {
  const testing::TemporaryFolder folder;
  const Parameters whole = network(kLast, DType::fp64);
  write(folder / "file", whole);
  const std::vector<double> all = whole.weights().to_vector();
  for (const FlatRange& range : {FlatRange{0, 128}, FlatRange{0, 1}, FlatRange{23, 25}, FlatRange{24, 48},
                                 FlatRange{7, 101}, FlatRange{119, 150}, FlatRange{128, 128}, FlatRange{64, 192}}) {
    const Parameters parameters = network(kLast, DType::fp64);
    const Tensor held = Tensor::zeros({range.size()}, DType::fp64, Device{});
    read_flat(folder / "file", parameters, {{"w.", held, {range}}});
    CHECK(held.to_vector() == std::vector<double>(all.begin() + range.first, all.begin() + range.end));
  }
  const Parameters part = network(kLast, DType::fp64, {.begin = 2, .end = 5});
  const std::vector<double> expected = part.weights().to_vector();
  clear(part);
  read_flat(folder / "file", part, {{"w.", part.weights(), {}}});
  CHECK(part.weights().to_vector() == expected);
}

TEST_CASE("memory order: a shard along the axis that moves is refused, and so is a file of another shape") {
  Parameters wrong;
  CHECK_THROWS_WITH(wrong.add({.names = {"w"}, .shape = {4, 3, 2}, .init = {}, .shard = {.axis = 1}, .order = kLast}),
                    "parameter w of shape [4, 3, 2] cannot lie channels-last, with parts along axis 1");
  CHECK_THROWS_WITH(wrong.add({.names = {"b"}, .shape = {4}, .init = {}, .order = kLast}),
                    "parameter b of shape [4] cannot lie channels-last, with parts along axis 0");

  // The shape that is told is the file's.
  const testing::TemporaryFolder folder;
  Parameters other, last = network(kLast);
  other.add({.names = {"conv.bias"}, .shape = {5}, .init = {}});
  other.add({.names = {"conv.weight"}, .shape = {5, 2, 4, 3}, .init = {}});
  other.allocate(DType::fp32, Device{}, 0);
  write(folder / "file", other);
  CHECK_THROWS_WITH(read_flat(folder / "file", last, {{"w.", last.weights(), {}}}),
                    std::string(folder / "file") + ": tensor w.conv.weight has shape [5, 2, 4, 3], not [5, 3, 2, 4]");
}
