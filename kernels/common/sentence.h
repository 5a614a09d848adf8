// The message of an error of any type.
#pragma once

#include <exception>
#include <filesystem>
#include <new>
#include <string>

namespace isobar {

// One sentence for the user. Call it while an exception is handled.
inline std::string sentence_of_current_exception() {
  try {
    throw;
  } catch (const std::filesystem::filesystem_error& error) {
    return error.path1().string() + ": " + error.code().message();
  } catch (const std::bad_alloc&) {
    return "out of memory";
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an error of an unknown kind";
  }
}

}  // namespace isobar
