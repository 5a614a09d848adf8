// The main program of the tests. Its exit status is that of Catch2, with one exception: kSkippedStatus if test cases
// were skipped, none failed and none ran to its end. ctest then counts the test as skipped. Words in the output have no
// effect. A name that matches no test case is a failure: ctest may pass a name that it has misread (it cuts a name at a
// semicolon).
#define CATCH_CONFIG_RUNNER  // Catch2 2: this file holds the library
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "kernels/common/check.h"
#include "kernels/cpu/isa.h"
#include "kernels/cuda/runtime.h"
#include "tests/harness/testing.h"

#if __has_include(<catch2/catch_all.hpp>)
using Catch::EventListenerBase;
#else
using EventListenerBase = Catch::TestEventListenerBase;
#endif

namespace isobar::testing {
namespace {

constexpr int kSkippedStatus = 77;  // SKIP_RETURN_CODE in tests/CMakeLists.txt

bool is_skipped = false;  // the running test case
int cases = 0, skipped_cases = 0;

struct SkipCounter : EventListenerBase {
  using EventListenerBase::EventListenerBase;
  void testCaseStarting(const Catch::TestCaseInfo&) override { is_skipped = false; }
  void testCaseEnded(const Catch::TestCaseStats&) override {
    ++cases;
    skipped_cases += is_skipped ? 1 : 0;
  }
};
CATCH_REGISTER_LISTENER(SkipCounter)

// Whether this CPU supports the instructions that ISOBAR_EMULATE_* requests.
bool products_can_be_emulated() {
  try {
    cpu::bf16_products();
    return true;
  } catch (const Error& error) {
    std::cout << error.what() << std::endl;
    return false;
  }
}

// Whether the GPU that ISOBAR_TEST_DEVICES requests exists.
bool wanted_gpu_is_here() {
  const char* wanted = std::getenv("ISOBAR_TEST_DEVICES");
  const bool is_here = wanted == nullptr || std::strstr(wanted, "cuda") == nullptr || gpu::device_count() > 0;
  if (!is_here) std::cout << "ISOBAR_TEST_DEVICES asks for a GPU, and there is none" << std::endl;
  return is_here;
}

}  // namespace

void note_skip() {
  is_skipped = true;
}

}  // namespace isobar::testing

// AddressSanitizer calls this: an allocation larger than any machine's memory returns null, as without it.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}

// Of some damaged files HDF5 1.10 reads beyond a block of its own. What lies there decides whether AddressSanitizer
// sees it: often in one of two processes only that read the same file.
extern "C" const char* __asan_default_suppressions();
extern "C" const char* __asan_default_suppressions() {
  return "interceptor_via_fun:H5O_attr_shared_decode\n";
}

// ThreadSanitizer calls this. Where a library has been opened meanwhile, the dynamic loader frees a thread's block of
// thread-local addresses, under a lock that ThreadSanitizer does not see.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return "race:rtld-malloc.h\n";
}

int main(int argc, char** argv) {
  using namespace isobar::testing;
  if (!products_can_be_emulated() || !wanted_gpu_is_here()) return kSkippedStatus;
  const int status = Catch::Session().run(argc, argv);
  const std::vector<std::string> words(argv + 1, argv + argc);
  const bool lists =
      std::any_of(words.begin(), words.end(), [](const auto& word) { return word.rfind("--list", 0) == 0; });
  if (status == 0 && cases == 0 && !lists && !words.empty() && words[0].rfind('-', 0) != 0) {
    std::cout << "no test case has such a name: " << words[0] << std::endl;
    return 1;
  }
  if (status == 0 && skipped_cases > 0 && skipped_cases == cases) return kSkippedStatus;
  return status == kSkippedStatus ? 1 : status;  // Catch2's status is how many checks failed
}

// The HDF5 library loses what it could not write to a full disk.
extern "C" const char* __lsan_default_suppressions();  // NOLINT: LeakSanitizer calls it by this name
extern "C" const char* __lsan_default_suppressions() {
  return "leak:H5";
}
