// Where a tensor lies in a buffer that holds ranges of the parameters' layout.
#include "engine/files/flat_tensors.h"

#include <cmath>
#include <limits>
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

namespace {

// Two vectors, each in a section of its own.
Parameters two_tensors(DType dtype = DType::fp32) {
  Parameters parameters;
  parameters.add({.names = {"a"}, .shape = {3}, .init = {.value = 1}, .decay = true});
  parameters.add({.names = {"b"}, .shape = {2}, .init = {.value = 2}});
  parameters.allocate(dtype, Device{}, 0);
  return parameters;
}

void set_tensor(const Parameters& parameters, std::size_t which, const std::vector<double>& values) {
  parameters.weight(parameters.named()[which]).set_values(values);
}

std::vector<double> tensor_of_two(const Parameters& parameters, std::size_t which) {
  return parameters.weight(parameters.named()[which]).to_vector();
}

Tensor whole_of(const FlatBuffer& buffer, const NamedParameter& p) {
  return buffer.values.slice(p.offset, p.full_shape);
}

FlatBuffers weights_of_two(const Parameters& parameters, const std::string& prefix = "") {
  return {{prefix, parameters.weights(), {}}};
}

}  // namespace

TEST_CASE(
    "flat tensors: a file that lacks a tensor or has one more changes nothing, and one with no number is refused") {
  const testing::TemporaryFolder folder;
  const std::string file = (folder / "file").string();
  const Parameters written = two_tensors();
  const auto refusal = [&](const Parameters& read, const std::string& prefix) {
    return testing::error_of([&] { read_flat(folder / "file", read, weights_of_two(read, prefix)); });
  };
  set_tensor(written, 0, {7, 8, 9});
  set_tensor(written, 1, {5, 6});
  write_flat(folder / "file", written, weights_of_two(written, "m."), {}, whole_of);
  const Parameters read = two_tensors();
  CHECK(refusal(read, "") == file + ": tensor a is missing");
  CHECK(refusal(read, "m.") == "");
  CHECK(tensor_of_two(read, 0) == std::vector<double>{7, 8, 9});
  CHECK(tensor_of_two(read, 1) == std::vector<double>{5, 6});

  for (const double wrong : {std::nan(""), std::numeric_limits<double>::infinity()})
    for (const std::size_t which : {1, 0}) {  // the last number of the last tensor, then of the first one
      const Parameters again = two_tensors();
      set_tensor(written, 0, {7, 8, which == 0 ? wrong : 9});
      set_tensor(written, 1, {5, which == 1 ? wrong : 6});
      write_flat(folder / "file", written, weights_of_two(written), {}, whole_of);
      CHECK(refusal(again, "") ==
            concat(file, ": tensor ", which == 0 ? "a" : "b", " holds numbers that are not finite"));
      // A tensor is read once, and the one that is refused keeps its numbers.
      CHECK(tensor_of_two(again, which) == std::vector<double>(which == 0 ? 3 : 2, which == 0 ? 1.0 : 2.0));
    }
  const Parameters again = two_tensors();
  set_tensor(written, 0, {7, 8, 9});
  FlatBuffers more = weights_of_two(written);
  more.push_back({"v.", written.weights(), {}});
  write_flat(folder / "file", written, more, {}, whole_of);
  CHECK(refusal(again, "") == file + ": tensor \"v.a\" is unknown to this model");
  CHECK(tensor_of_two(again, 0) == std::vector<double>(3, 1.0));
  CHECK(tensor_of_two(again, 1) == std::vector<double>(2, 2.0));
}

TEST_CASE("flat tensors: some tensors are read by their names, and none that holds no number") {
  const testing::TemporaryFolder folder;
  const Parameters written = two_tensors();
  set_tensor(written, 0, {7, 8, 9});
  set_tensor(written, 1, {5, 6});
  write_flat(folder / "file", written, weights_of_two(written), {}, whole_of);
  const Parameters one = two_tensors();
  read_named(folder / "file", one, weights_of_two(one)[0], {"b"});
  CHECK(tensor_of_two(one, 0) == std::vector<double>(3, 1.0));
  CHECK(tensor_of_two(one, 1) == std::vector<double>{5, 6});
  set_tensor(written, 1, {5, std::nan("")});
  write_flat(folder / "file", written, weights_of_two(written), {}, whole_of);
  const Parameters none = two_tensors();
  CHECK(testing::error_of([&] {
          read_named(folder / "file", none, weights_of_two(none)[0], {"a", "b"});
        }) == (folder / "file").string() + ": tensor b holds numbers that are not finite");
  CHECK(tensor_of_two(none, 1) == std::vector<double>(2, 2.0));
}

TEST_CASE("flat tensors: a whole tensor is set in what is held of it, and NaN leaves an element as it is") {
  for (const DType dtype : {DType::fp32, DType::fp64}) {
    const Parameters parameters = two_tensors(dtype);
    const NamedParameter &a = parameters.named()[0], &b = parameters.named()[1];
    const FlatBuffer all = weights_of_two(parameters)[0];
    set_whole(all, a, std::vector<double>{7, std::nan(""), 9});
    CHECK(tensor_of_two(parameters, 0) == std::vector<double>{7, 1, 9});
    CHECK(tensor_of_two(parameters, 1) == std::vector<double>(2, 2.0));
    // A buffer that holds the last element of `a` and the first one of `b`.
    const Tensor held = Tensor::zeros({2}, dtype, Device{});
    const FlatBuffer part{"m.", held, {{a.offset + 2, a.offset + 3}, {b.offset, b.offset + 1}}};
    set_whole(part, a, std::vector<double>{3, 4, 5});
    set_whole(part, b, std::vector<double>{6, 8});
    CHECK(held.to_vector() == std::vector<double>{5, 6});
    CHECK(testing::error_of([&] { set_whole(all, a, std::vector<double>(4)); }) ==
          "tensor a of shape [3] cannot have 4 elements");
  }
}

TEST_CASE("flat tensors: numbers are finite where all of them are, to the last one") {
  for (const DType dtype : {DType::fp32, DType::fp64}) {
    Tensor values = Tensor::zeros({5}, dtype, Device{});
    CHECK(is_finite(values));
    for (const double wrong : {std::nan(""), -std::numeric_limits<double>::infinity()})
      for (const std::size_t place : {0, 4}) {
        std::vector<double> numbers(5, 1e30);
        numbers[place] = wrong;
        values.set_values(numbers);
        CHECK_FALSE(is_finite(values));
      }
  }
}
