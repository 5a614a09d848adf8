// Where a tensor lies in a buffer that holds ranges of the parameters' layout.
#include "engine/files/flat_tensors.h"

#include <string>

#include "tests/harness/error_of.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;

namespace {

// One parameter of this shape.
Parameters one_tensor(const Shape& shape) {
  Parameters parameters;
  parameters.add({.names = {"w"}, .shape = shape, .init = {}});
  parameters.allocate(DType::fp32, Device{}, 0);
  return parameters;
}

}  // namespace

TEST_CASE("flat tensors: what a buffer holds of a tensor is one range, or an error") {
  const NamedParameter w{
      .name = "w", .shape = {2, 5}, .offset = 20, .full_shape = {2, 5}, .shard = {.begin = 0, .end = 2}};
  const auto part = [&](std::vector<FlatRange> held) { return held_part({"m.", Tensor(), std::move(held)}, w); };
  const HeldPart all = part({});
  CHECK((all.first == 0 && all.end == 10 && all.at == 20));
  const HeldPart middle = part({{3, 10}, {22, 25}, {30, 40}});
  CHECK((middle.first == 2 && middle.end == 5 && middle.at == 7));
  CHECK(part({{0, 20}, {30, 40}}).size() == 0);
  CHECK_THROWS_WITH(part({{3, 10}, {18, 22}, {25, 40}}), "tensor m.w is held in more than one range");
}

// A matrix that lies transposed in the file would make a model that is wrong and says nothing.
TEST_CASE("flat tensors: a file's tensor of another shape is refused, though it has as many elements") {
  const testing::TemporaryFolder folder;
  const Shape kShape{2, 3, 4};
  const auto whole = [](const FlatBuffer& buffer, const NamedParameter& p) {
    return buffer.values.slice(p.offset, p.full_shape);
  };
  for (const std::string prefix : {"", "m."}) {
    const auto buffers = [&](const Parameters& p) { return FlatBuffers{{prefix, p.weights(), {}}}; };
    for (const Shape& shape : {Shape{2, 4, 3}, Shape{4, 3, 2}, Shape{6, 4}, Shape{24}, Shape{1, 2, 3, 4}, kShape}) {
      const Parameters written = one_tensor(shape), read = one_tensor(kShape);
      write_flat(folder / "file", written, buffers(written), {}, whole);
      const std::string refusal =
          (folder / "file").string() + ": tensor " + prefix + "w has shape " + to_string(shape) + ", not [2, 3, 4]";
      CHECK(testing::error_of([&] { read_flat(folder / "file", read, buffers(read)); }) ==
            (shape == kShape ? "" : refusal));
    }
  }
}
