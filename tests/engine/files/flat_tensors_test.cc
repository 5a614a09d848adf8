// Where a tensor lies in a buffer that holds ranges of the parameters' layout.
#include "engine/files/flat_tensors.h"

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "tests/harness/error_of.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;

namespace {

// Counts the elements that are read of each tensor.
class CountingReader : public TensorReader {
 public:
  explicit CountingReader(const std::filesystem::path& path) : file_(path) {}

  const std::filesystem::path& path() const override { return file_.path(); }
  const std::vector<TensorInfo>& tensors() const override { return file_.tensors(); }
  const TensorInfo* find(const std::string& name) const override { return file_.find(name); }
  void read(const TensorInfo& tensor, std::int64_t first, std::int64_t count, DType to, std::byte* out) const override {
    elements[tensor.name] += count;
    file_.read(tensor, first, count, to, out);
  }

  mutable std::map<std::string, std::int64_t> elements;

 private:
  SafetensorsReader file_;
};

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

TEST_CASE("flat tensors: a file is read once, and not at all where its tensors are not those of the buffers") {
  const testing::TemporaryFolder folder;
  const auto two = [](const char* second) {
    Parameters parameters;
    parameters.add({.names = {"a"}, .shape = {3, 4}, .init = {}});
    parameters.add({.names = {second}, .shape = {5}, .init = {}});
    parameters.allocate(DType::fp32, Device{}, 0);
    return parameters;
  };
  const auto buffers = [](const Parameters& p) { return FlatBuffers{{"", p.weights(), {}}, {"m.", p.weights(), {}}}; };
  const auto whole = [](const FlatBuffer& buffer, const NamedParameter& p) {
    return buffer.values.slice(p.offset, p.full_shape);
  };
  const Parameters written = two("b"), read = two("b"), other = two("c");
  written.weights().slice(written.named()[0].offset, {12}).set_values(std::vector<double>(12, 1.5));
  write_flat(folder / "file", written, buffers(written), {}, whole);
  const CountingReader reader(folder / "file");
  CHECK(testing::error_of([&] { read_flat(reader, other, buffers(other)); }) ==
        (folder / "file").string() + ": tensor c is missing");
  CHECK(reader.elements.empty());
  read_flat(reader, read, buffers(read));
  CHECK(reader.elements == std::map<std::string, std::int64_t>{{"a", 12}, {"b", 5}, {"m.a", 12}, {"m.b", 5}});
  CHECK(read.weights().to_vector() == written.weights().to_vector());

  written.weights().slice(written.named()[1].offset, {1}).set_values({std::nan("")});
  write_flat(folder / "file", written, buffers(written), {}, whole);
  CHECK(testing::error_of([&] { read_flat(folder / "file", read, buffers(read)); }) ==
        (folder / "file").string() + ": tensor b holds numbers that are not finite");
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
