#include "data/files/stored_arrays.h"
#include <fstream>
#include "data/files/netcdf3.h"
#include "kernels/common/check.h"
namespace isobar {
namespace {
class Nc3Arrays : public StoredArrays {
 public:
  explicit Nc3Arrays(const std::string& path) : file_(netcdf3::File::open(path)) {
    for (const auto& v : file_.variables()) infos_.push_back(v.info);
  }
  const std::string& path() const override { return file_.path(); }
  const char* format() const override { return "NetCDF-3"; }
  const std::vector<ArrayInfo>& arrays() const override { return infos_; }
  std::unique_ptr<BoxReader> open(const std::string& name, const BoxReaderOptions& options) const override {
    for (const auto& v : file_.variables())
      if (v.info.name == name) return netcdf3::make_box_reader(file_, v, options);
    throw_error(path(), " has no ", name);
  }

 private:
  netcdf3::File file_;
  std::vector<ArrayInfo> infos_;
};
}  // namespace
bool is_stored_arrays(const std::string& path) {
  std::ifstream f(path);
  char b[3] = {};
  f.read(b, 3);
  return std::string(b, 3) == "CDF";
}
std::shared_ptr<const StoredArrays> open_stored_arrays(const std::string& path) {
  return std::make_shared<Nc3Arrays>(path);
}
}  // namespace isobar
