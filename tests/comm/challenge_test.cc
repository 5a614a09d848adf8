// HMAC-SHA256 beside the vectors of RFC 4231 and FIPS 180-4, what ranks show each other with it, and seals.
#include "comm/challenge.h"

#include <string>

#include "comm/hmac.h"
#include "kernels/common/check.h"
#include "tests/harness/testing.h"

using namespace isobar;

namespace {

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) {
    text += "0123456789abcdef"[static_cast<unsigned char>(byte) >> 4];
    text += "0123456789abcdef"[static_cast<unsigned char>(byte) & 15];
  }
  return text;
}

}  // namespace

TEST_CASE("challenge: SHA-256 and HMAC-SHA256 are those of the standards") {
  CHECK(hex(sha256("")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hex(sha256("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")) ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  // Lengths about a block: its padding fits, fits no more, and takes a block of its own.
  CHECK(hex(sha256(std::string(55, 'a'))) == "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
  CHECK(hex(sha256(std::string(56, 'a'))) == "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a");
  CHECK(hex(sha256(std::string(63, 'a'))) == "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34");
  CHECK(hex(sha256(std::string(64, 'a'))) == "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
  CHECK(hex(sha256(std::string(1000000, 'a'))) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  const auto hmac = [](const std::string& key, const std::string& bytes) { return hex(hmac_sha256(key, bytes)); };
  CHECK(hmac(std::string(20, '\x0b'), "Hi There") ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(hmac("Jefe", "what do ya want for nothing?") ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(hmac(std::string(20, '\xaa'), std::string(50, '\xdd')) ==
        "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  CHECK(hmac(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First") ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  // A key that fills a block is taken as it is, and a longer one by its hash (made by Python's hmac).
  CHECK(hmac(std::string(63, 'k'), "Hi There") == "c8ad594e39caad68d6e52d3d9bd1e64e7b0cd89529012d5e491da4f44ec07fe4");
  CHECK(hmac(std::string(64, 'k'), "Hi There") == "5869e1671d6aa2838f1028b78343e7ee54efe2c036d66bdb25451fcd74beca6e");
  CHECK(hmac(std::string(65, 'k'), "Hi There") == "a64d953034c2c752115ac1fec7be993fa739388556f1dc64cf82582f8d7d251c");
  CHECK(random_bytes(16).size() == 16);
  CHECK(random_bytes(16) != random_bytes(16));
  CHECK(are_equal_in_constant_time("abc", "abc"));
  CHECK(!are_equal_in_constant_time("abc", "abd"));
  CHECK(!are_equal_in_constant_time("abc", "xbc"));
  CHECK(!are_equal_in_constant_time("abc", "ab"));
}

TEST_CASE("challenge: proofs depend on the key, both random numbers and who gives them") {
  const Challenge one("key", std::string(16, 'a'), std::string(16, 'b'));
  CHECK(one.proof_of_first() == Challenge("key", std::string(16, 'a'), std::string(16, 'b')).proof_of_first());
  CHECK(one.proof_of_first() != one.proof_of_rank());
  for (const Challenge& other : {Challenge("kez", std::string(16, 'a'), std::string(16, 'b')),
                                 Challenge("key", std::string(16, 'c'), std::string(16, 'b')),
                                 Challenge("key", std::string(16, 'a'), std::string(16, 'c'))}) {
    CHECK(one.proof_of_first() != other.proof_of_first());
    CHECK(one.proof_of_rank() != other.proof_of_rank());
  }
}

TEST_CASE("challenge: what is sealed is opened in its order only, and shows nothing") {
  const Challenge both("key", std::string(16, 'a'), std::string(16, 'b'));
  const std::string text = "a text of more bytes than one block of the key stream has: " + std::string(40, 'x');
  Seal from = both.to_first(), to = both.to_first();
  const std::string first = from.close(text), second = from.close(text);
  CHECK(first.size() == text.size() + kSealBytes);
  CHECK(first != second);
  CHECK(first.substr(0, text.size()) != second.substr(0, text.size()));  // nor two messages that are alike
  CHECK(first.find("text") == std::string::npos);
  // Nor does it show where a text repeats itself.
  const std::string repeated = both.to_first().close(std::string(4 * kDigestBytes, 'x'));
  for (std::size_t at = kDigestBytes; at < 4 * kDigestBytes; at += kDigestBytes)
    CHECK(repeated.substr(at, kDigestBytes) != repeated.substr(0, kDigestBytes));
  CHECK_THROWS_AS(Seal(to).open(second), Error);  // not the next one
  CHECK(to.open(first) == text);
  CHECK_THROWS_AS(Seal(to).open(first), Error);  // said again
  for (std::size_t i = 0; i < second.size(); i += 13) {
    std::string changed = second;
    changed[i] ^= 1;
    CHECK_THROWS_AS(Seal(to).open(changed), Error);
  }
  CHECK_THROWS_WITH(Seal(to).open("short"), "a message without a seal");
  CHECK_THROWS_WITH(Seal(to).open(std::string(kSealBytes - 1, 'x')), "a message without a seal");
  CHECK_THROWS_WITH(Seal(to).open(std::string(kSealBytes, 'x')), "a broken seal");
  Seal empty_from = both.to_rank(), empty_to = both.to_rank();
  CHECK(empty_to.open(empty_from.close("")) == "");
  CHECK_THROWS_AS(both.to_rank().open(first), Error);  // of the other direction
  CHECK(to.open(second) == text);
}
