// UTF-8: what is valid, where it is not, and what replaces it.
#include "data/text/utf8.h"

#include "data/text/unicode_classes.h"
#include "tests/harness/testing.h"

using namespace isobar;

TEST_CASE("utf8: every code point but surrogates is written and read back") {
  std::string text;
  for (char32_t value = 0; value < 0x110000; ++value) {
    if (value >= 0xd800 && value < 0xe000) continue;
    text.clear();
    append_utf8(text, value);
    const CodePoint read = code_point_at(text, 0);
    if (read.value != value || read.bytes != text.size() || first_invalid_byte(text)) FAIL("U+" << std::hex << +value);
    for (std::size_t cut = 1; cut < text.size(); ++cut)
      if (code_point_at(text.substr(0, cut), 0).bytes != 0) FAIL("cut U+" << std::hex << +value);
  }
}

TEST_CASE("utf8: bytes that are not valid are found, and replaced as Python does") {
  struct Case {
    std::string bytes;
    std::size_t place;
    std::int64_t replaced;
  };
  // bytes.decode("utf-8", "replace") of Python 3.11 gives as many U+FFFD.
  for (const Case& bad : {Case{"\x80", 0, 1},
                          {"ab\xff", 2, 1},
                          {"\xc3", 0, 1},
                          {"\xc0\x80", 0, 2},
                          {"\xe2\x82", 0, 1},
                          {"12345678\xe2\x82z", 8, 1},
                          {"\xe0\x80\x80", 0, 3},
                          {"\xed\xa0\x80", 0, 3},
                          {"\xf0\x9f\x98", 0, 1},
                          {"\xf0\x9fz", 0, 1},
                          {"\xf0\x80\x80\x80", 0, 4},
                          {"\xf4\x90\x80\x80", 0, 4},
                          {"\xf5\x80", 0, 2},
                          {"\xe2\x28\xa1", 0, 2},
                          // The first and last bytes that may come second.
                          {"\xe0\xa0", 0, 1},
                          {"\xe0\x9f", 0, 2},
                          {"\xed\x9f", 0, 1},
                          {"\xed\xa0", 0, 2},
                          {"\xf0\x90\x80", 0, 1},
                          {"\xf0\x8f\x80", 0, 3},
                          {"\xf4\x8f\xbf", 0, 1},
                          {"\xf4\x90\x80", 0, 3},
                          {"é\xe9 é", 2, 1}}) {
    INFO("bytes: " << Catch::Detail::stringify(bad.bytes));
    CHECK(first_invalid_byte(bad.bytes) == bad.place);
    std::int64_t replaced = 10;
    const std::string valid = with_invalid_replaced(bad.bytes, replaced);
    CHECK(replaced == 10 + bad.replaced);
    CHECK_FALSE(first_invalid_byte(valid));
    std::int64_t again = 0;
    CHECK(with_invalid_replaced(valid, again) == valid);
    CHECK(again == 0);
  }
  std::int64_t replaced = 0;
  CHECK(with_invalid_replaced("a\xffz", replaced) == "a\xef\xbf\xbdz");
  CHECK_FALSE(first_invalid_byte("plain text, longer than eight bytes, \xc3\xa9"));
}

TEST_CASE("unicode classes: letters, numbers and white space") {
  const UnicodeClass* classes = unicode_classes();
  for (const char32_t letter : U"AzéßМ海ªʰ")
    if (letter != 0) CHECK(classes[letter] == UnicodeClass::letter);
  for (const char32_t number : U"09²Ⅷ½٣")
    if (number != 0) CHECK(classes[number] == UnicodeClass::number);
  for (const char32_t space :
       {0x9, 0xd, 0x20, 0x85, 0xa0, 0x1680, 0x2000, 0x200a, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000})
    CHECK(classes[space] == UnicodeClass::space);
  for (const char32_t other : {0x0, 0x1c, 0x1f, 0x200b, 0x2060, 0xfeff, 0x301, 0x21, 0x1f600, 0x378, 0x10ffff})
    CHECK(classes[other] == UnicodeClass::other);
}
