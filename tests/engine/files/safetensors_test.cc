// safetensors: what is written comes back; every malformed file gives an Error that names it, never a crash.
#include "engine/files/safetensors.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <random>

#include "engine/files/reader.h"
#include "kernels/common/check.h"
#include "tests/harness/file_size_limit.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using testing::ContainsSubstring;
using testing::TemporaryFolder;

template <class T>
TensorBytes tensor(std::string name, std::vector<std::int64_t> shape, const std::vector<T>& values) {
  return {{std::move(name), dtype_of<T>, std::move(shape)}, std::as_bytes(std::span(values))};
}

template <class T>
std::vector<T> values_of(const TensorBytes& tensor) {
  std::vector<T> values(tensor.bytes.size() / sizeof(T));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

// A file as bytes: length, header, data.
std::string file_of(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + data;
}

std::filesystem::path written(const TemporaryFolder& folder, const std::string& contents) {
  const std::filesystem::path path = folder / "broken.safetensors";
  std::ofstream(path, std::ios::binary) << contents;
  return path;
}

const std::vector<float> kWeight{1.5f, -2.0f, 3.25f, 0.0f, 5.0f, std::numeric_limits<float>::infinity()};
const std::vector<double> kBias{0.1, -1e300};
const std::vector<bf16> kHalf{bf16(1.0f), bf16(-0.5f), bf16(3.0f)};
const std::vector<std::int32_t> kCount{7};
const std::vector<float> kNothing;

std::vector<TensorBytes> example() {
  return {tensor("z.weight", {2, 3}, kWeight), tensor("half", {3}, kHalf), tensor("a.bias", {2}, kBias),
          tensor("empty", {0, 4}, kNothing), tensor("count", {}, kCount)};
}

TEST_CASE("safetensors come back as they were written", "[safetensors]") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "model.safetensors";
  write_safetensors(path, example(), {{"config", "{\"lr\": 1}"}, {"unit", "K \"and\" \u00b0C"}});
  const SafetensorsFile file(path);
  REQUIRE(file.tensors().size() == 5);
  CHECK(file.metadata().at("unit") == "K \"and\" \u00b0C");
  CHECK(file.metadata().size() == 2);
  CHECK(file.tensors()[0].info.name == "z.weight");  // the order given, not the alphabet's
  CHECK(file.tensors()[4].info.name == "count");
  CHECK(file.at("z.weight").info.shape == std::vector<std::int64_t>{2, 3});
  CHECK(file.at("count").info.shape.empty());
  CHECK(file.at("half").info.dtype == DType::bf16);
  CHECK(values_of<float>(file.at("z.weight")) == kWeight);
  CHECK(values_of<double>(file.at("a.bias")) == kBias);
  CHECK(values_of<std::int32_t>(file.at("count")) == kCount);
  CHECK(file.at("empty").bytes.empty());
  CHECK(file.find("absent") == nullptr);
  CHECK_THROWS_WITH(file.at("absent"), ContainsSubstring(path.string()) && ContainsSubstring("\"absent\""));
}

TEST_CASE("safetensors are read in parts, of any dtype and from any place", "[safetensors]") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "model.safetensors";
  write_safetensors(path, example(), {{"config", "{}"}});
  const SafetensorsReader file(path);
  REQUIRE(file.tensors().size() == 5);
  CHECK(file.metadata().at("config") == "{}");
  CHECK(file.find("absent") == nullptr);
  const auto read = [&]<class T>(const char* name, std::int64_t first, std::vector<T> like, DType to) {
    file.read(*file.find(name), first, std::ssize(like), to, reinterpret_cast<std::byte*>(like.data()));
    return like;
  };
  CHECK(read("z.weight", 0, std::vector<float>(6), DType::fp32) == kWeight);
  CHECK(read("z.weight", 2, std::vector<float>(3), DType::fp32) == std::vector<float>{3.25f, 0.0f, 5.0f});
  CHECK(read("z.weight", 1, std::vector<double>(2), DType::fp64) == std::vector<double>{-2, 3.25});
  CHECK(read("half", 1, std::vector<float>(2), DType::fp32) == std::vector<float>{-0.5f, 3});
  CHECK(read("a.bias", 1, std::vector<double>(1), DType::fp64) == std::vector<double>{-1e300});
  CHECK(read("empty", 0, std::vector<float>(), DType::fp32).empty());
  CHECK_THROWS_WITH(read("z.weight", 5, std::vector<float>(2), DType::fp32),
                    ContainsSubstring("\"z.weight\" has no elements [5, 7)"));
  CHECK_THROWS_WITH(read("z.weight", -1, std::vector<float>(2), DType::fp32), ContainsSubstring("[-1, 1)"));
  CHECK_THROWS_WITH(read("count", 0, std::vector<float>(1), DType::fp32), ContainsSubstring("\"count\""));
  std::filesystem::resize_file(path, 200);  // what is not read yet is gone
  CHECK_THROWS_WITH(read("a.bias", 0, std::vector<double>(2), DType::fp64), ContainsSubstring("is being cut off"));
}

TEST_CASE("safetensors have the bytes of the format", "[safetensors]") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "one.safetensors";
  const std::vector<float> values{1.0f};
  write_safetensors(path, std::vector{tensor("w", {1}, values)}, {{"k", "v"}});
  const std::string header = R"({"__metadata__":{"k":"v"},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  REQUIRE(header.size() % 8 != 0);  // so that there is padding to be seen
  std::string padded = header;
  padded.resize((header.size() + 7) / 8 * 8, ' ');
  CHECK(read_file(path) == file_of(padded, std::string("\0\0\x80\x3f", 4)));
}

TEST_CASE("a safetensors writer takes tensors in pieces and in order only", "[safetensors]") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "pieces.safetensors";
  const std::vector<TensorInfo> infos{{"a", DType::fp32, {6}}, {"none", DType::fp32, {0}}, {"b", DType::i32, {1}}};
  const auto bytes = std::as_bytes(std::span(kWeight));
  SafetensorsWriter writer(path, infos);
  writer.append("a", bytes.first(10));
  CHECK_THROWS_WITH(writer.append("b", bytes.first(4)),
                    path.string() + ": tensor \"b\" is written out of order, or the one before it is incomplete");
  CHECK_THROWS_WITH(writer.commit(), path.string() + ": tensor \"a\" got only 10 of its bytes");
  writer.append("a", bytes.subspan(10));
  CHECK_THROWS_WITH(writer.commit(), ContainsSubstring("\"b\""));
  writer.append("b", std::as_bytes(std::span(kCount)));
  CHECK_FALSE(std::filesystem::exists(path));
  writer.commit();
  CHECK(values_of<float>(SafetensorsFile(path).at("a")) == kWeight);

  const std::vector<float> seven(7);
  SafetensorsWriter too_long(path, infos);
  CHECK_THROWS_WITH(too_long.append("a", std::as_bytes(std::span(seven))),
                    path.string() + ": tensor \"a\" got 28 bytes, but its shape and dtype need 24");
  CHECK_THROWS_WITH(SafetensorsWriter(path, {{"a", DType::fp32, {1}}, {"a", DType::fp32, {1}}}),
                    path.string() + ": tensor \"a\" is given twice, or has a name that is not free");
  CHECK_THROWS_WITH(SafetensorsWriter(path, {{"__metadata__", DType::fp32, {1}}}),
                    path.string() + ": tensor \"__metadata__\" is given twice, or has a name that is not free");
  CHECK_THROWS_WITH(SafetensorsWriter(path, {{"a", DType::fp32, {-1}}}), "tensor \"a\" has an impossible shape");
  CHECK_THROWS_WITH(SafetensorsWriter(path, {{"\xff", DType::fp32, {1}}}),
                    path.string() + ": a tensor's name or the metadata is not valid UTF-8");
  CHECK(values_of<float>(SafetensorsFile(path).at("a")) == kWeight);  // none of these touched the file
}

TEST_CASE("a full disk leaves no safetensors file", "[safetensors]") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "model.safetensors";
  const std::vector<float> large(10000);
  {
    const testing::FileSizeLimit full(20000);
    CHECK_THROWS_WITH(write_safetensors(path, std::vector{tensor("w", {10000}, large)}),
                      ContainsSubstring(path.string()));
  }
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("elements convert between floating types", "[safetensors]") {
  const std::vector<double> values{1.0, -0.3, 65504.0, 1e-7, INFINITY};
  const TensorBytes from = tensor("w", {5}, values);
  std::vector<float> singles(5);
  copy_elements(from, DType::fp32, reinterpret_cast<std::byte*>(singles.data()));
  for (int i = 0; i < 5; ++i) CHECK(singles[i] == static_cast<float>(values[i]));
  std::vector<fp16> halves(5);
  copy_elements(from, DType::fp16, reinterpret_cast<std::byte*>(halves.data()));
  for (int i = 0; i < 5; ++i) CHECK(halves[i].bits == fp16(static_cast<float>(values[i])).bits);
  std::vector<double> back(5);
  copy_elements(tensor("h", {5}, halves), DType::fp64, reinterpret_cast<std::byte*>(back.data()));
  for (int i = 0; i < 5; ++i) CHECK(back[i] == static_cast<double>(static_cast<float>(halves[i])));
  std::vector<bf16> brains(5);
  copy_elements(tensor("h", {5}, singles), DType::bf16, reinterpret_cast<std::byte*>(brains.data()));
  for (int i = 0; i < 5; ++i) CHECK(brains[i].bits == bf16(singles[i]).bits);
  CHECK_THROWS_WITH(copy_elements(tensor("n", {1}, kCount), DType::fp32, nullptr), ContainsSubstring("\"n\""));
}

TEST_CASE("malformed safetensors are refused by name", "[safetensors]") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& contents, const std::string& why) {
    const std::filesystem::path path = written(folder, contents);
    INFO(contents.substr(0, 200));
    CHECK_THROWS_WITH(SafetensorsFile(path), ContainsSubstring(path.string()) && ContainsSubstring(why));
  };
  const std::string data(16, 'd');
  const auto one = [&](const std::string& entry) { return file_of("{\"w\":" + entry + "}", data); };
  const std::string good = R"({"dtype":"F32","shape":[4],"data_offsets":[0,16]})";
  CHECK_NOTHROW(SafetensorsFile(written(folder, one(good))));
  CHECK_NOTHROW(SafetensorsFile(written(folder, file_of("{}", ""))));
  refused(std::string("PK\x03\x04\0\0\b\b\0\0\0\0", 12),
          "is a pickle, as torch.save writes them, and no safetensors file");

  refused("", "0 bytes");
  refused("1234567", "7 bytes");
  refused(std::string(8, '\xff'), "header of 18446744073709551615");
  refused(std::string("\x09\0\0\0\0\0\0\0{}", 10), "cut off: it has 10 bytes and names a header of 9");
  refused(file_of("", data), "not valid JSON");
  refused(file_of("{\"w\":" + good, data), "not valid JSON");
  refused(file_of("[1]", ""), "not a JSON object");
  refused(file_of(std::string(100000, '['), ""), "not valid JSON");
  refused(file_of("{\"w\xff\":1}", ""), "not valid JSON");
  refused(file_of("{\"w\":" + good + ",\"w\":" + good + "}", data), "\"w\" is there twice");
  refused(file_of(R"({"__metadata__":[]})", ""), "__metadata__ is not");
  refused(file_of(R"({"__metadata__":{"lr":1}})", ""), "\"lr\"");
  refused(one("3"), "\"w\"");
  refused(one(R"({"shape":[4],"data_offsets":[0,16]})"), "\"w\" has no dtype");
  refused(one(R"({"dtype":"F32","data_offsets":[0,16]})"), "\"w\" has no shape");
  refused(one(R"({"dtype":"F32","shape":[4]})"), "\"w\" has no data_offsets");
  refused(one(R"({"dtype":"I64","shape":[2],"data_offsets":[0,16]})"), "\"w\" has dtype \"I64\"");
  refused(one(R"({"dtype":32,"shape":[4],"data_offsets":[0,16]})"), "\"w\" has a dtype that is not a string");
  refused(one(R"({"dtype":"F32","shape":4,"data_offsets":[0,16]})"), "\"w\" has a shape");
  refused(one(R"({"dtype":"F32","shape":[-4],"data_offsets":[0,16]})"), "\"w\" has a shape");
  refused(one(R"({"dtype":"F32","shape":[4.0],"data_offsets":[0,16]})"), "\"w\" has a shape");
  refused(one(R"({"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,16]})"), "\"w\" has a shape");
  refused(one(R"({"dtype":"F32","shape":[4611686018427387904,4,4],"data_offsets":[0,16]})"), "\"w\" has a shape too");
  refused(one(R"({"dtype":"F32","shape":[4611686018427387908],"data_offsets":[0,16]})"), "\"w\" has a shape too");
  refused(one(R"({"dtype":"F32","shape":[5],"data_offsets":[0,16]})"),
          "\"w\" has 16 bytes, but its shape and dtype need 20");
  refused(one(R"({"dtype":"F32","shape":[5],"data_offsets":[0,20]})"),
          "\"w\" ends at byte 20 of the data, but the file has only 16 bytes of it; is it cut off?");
  refused(one(R"({"dtype":"F32","shape":[4],"data_offsets":[16,0]})"),
          "\"w\" has data_offsets that are not [begin, end]");
  refused(one(R"({"dtype":"F32","shape":[4],"data_offsets":[0]})"), "\"w\" has data_offsets");
  refused(one(R"({"dtype":"F32","shape":[4],"data_offsets":[0,9223372036854775807]})"), "\"w\" ends at byte");
  refused(one(R"({"dtype":"F32","shape":[3],"data_offsets":[0,12]})"), "after the last");
  refused(one(R"({"dtype":"F32","shape":[3],"data_offsets":[4,16]})"), "before tensor \"w\"");
  refused(file_of("{\"w\":" + good + R"(,"x":{"dtype":"F32","shape":[1],"data_offsets":[12,16]}})", data),
          "\"x\" overlaps");
  refused(one(R"({"dtype":"F32","shape":[1e999],"data_offsets":[0,16]})"), "number 1e999 is too large");
  refused(one(R"({"dtype":"F32","dtype":"F32","shape":[4],"data_offsets":[0,16]})"), "\"w.dtype\" is there twice");
  refused(file_of("{\"\\n\":3}", data), "\"\\n\"");  // one line, whatever a name holds

  // A header of more than the 100 MB that the reference implementation reads, though the file has them.
  const std::filesystem::path long_header = written(folder, std::string("\x01\xe1\xf5\x05\0\0\0\0", 8));
  std::filesystem::resize_file(long_header, 100'000'009);
  CHECK_THROWS_WITH(SafetensorsFile(long_header),
                    ContainsSubstring("it has 100000009 bytes and names a header of 100000001"));

  CHECK_THROWS_WITH(SafetensorsFile(folder / "absent"), ContainsSubstring((folder / "absent").string()));
  CHECK_THROWS_WITH(SafetensorsFile(folder.path()), ContainsSubstring("not a file"));
}

TEST_CASE("safetensors that are cut off after they were opened keep their values", "[safetensors]") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "model.safetensors";
  write_safetensors(path, example());
  const SafetensorsFile file(path);
  std::filesystem::resize_file(path, 0);
  CHECK(values_of<float>(file.at("z.weight")) == kWeight);
}

// Whatever happens to a file, opening it either works or throws Error, in one line that names the file.
void open_broken(const std::filesystem::path& path) {
  try {
    const SafetensorsFile file(path);
    for (const TensorBytes& tensor : file.tensors()) {
      std::vector<std::byte> bytes(tensor.bytes.begin(), tensor.bytes.end());  // reads all of it
      REQUIRE(bytes.size() == bytes_of(tensor.info));
    }
  } catch (const Error& error) {
    const std::string message = error.what();
    REQUIRE(message.find(path.string()) != std::string::npos);
    REQUIRE(message.find('\n') == std::string::npos);
  }
}

TEST_CASE("truncated and flipped safetensors never crash", "[safetensors]") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "model.safetensors";
  write_safetensors(path, example(), {{"config", "{}"}});
  const std::string whole = read_file(path);

  for (std::size_t length = 0; length < whole.size(); ++length) {
    const std::filesystem::path cut = written(folder, whole.substr(0, length));
    CHECK_THROWS_AS(SafetensorsFile(cut), Error);
  }
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    open_broken(written(folder, flipped));
  }
  std::mt19937 random(1);
  const std::string alphabet = "{}[]:,\"0123456789-eF3B6\\un\xc3\x80 ";
  for (int round = 0; round < 3000; ++round) {
    std::string mutated = whole;
    for (unsigned change = 0; change <= random() % 4; ++change) {
      const std::size_t at = random() % mutated.size();
      switch (random() % 3) {
        case 0:
          mutated[at] = alphabet[random() % alphabet.size()];
          break;
        case 1:
          mutated.erase(at, 1 + random() % 8);
          break;
        default:
          mutated.insert(at, mutated.substr(random() % mutated.size(), 1 + random() % 8));
      }
    }
    open_broken(written(folder, mutated));
  }
}

}  // namespace
}  // namespace isobar
