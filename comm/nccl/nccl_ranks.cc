#include "comm/nccl/nccl_ranks.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "comm/nccl/session.h"
#include "kernels/common/check.h"
#include "kernels/common/host_name.h"
#include "kernels/emulator/devices.h"

namespace isobar {
namespace {

using nccl::Api;
using nccl::Comm;
using nccl::Handle;
using nccl::Result;
using nccl::Session;

constexpr const char* kSplit = "the split of a group";

nccl::Type type_of(const std::optional<DType>& dtype) {
  if (!dtype) return nccl::kInt8;
  switch (*dtype) {
    case DType::fp64:
      return nccl::kFloat64;
    case DType::fp32:
      return nccl::kFloat32;
    case DType::bf16:
      return nccl::kBfloat16;
    case DType::fp16:
      return nccl::kFloat16;
    case DType::i32:
      return nccl::kInt32;
  }
  throw_error("NCCL has no type for ", name_of(*dtype));
}

// Translates one call of isobar to calls of NCCL.
class Translation {
 public:
  Translation(const Call& call, int rank, int size, int max_grouped, Comm comm)
      : call_(call), rank_(rank), size_(size), max_grouped_(max_grouped), comm_(comm), type_(type_of(call.dtype)) {}

  Result put() const {
    const auto n = static_cast<std::size_t>(call_.sends.empty() ? 0 : call_.sends[0]);
    const nccl::Op op = call_.reduce == Reduce::max ? nccl::kMax : nccl::kSum;
    switch (call_.verb) {
      case Verb::all_reduce:
        return api_.AllReduce(call_.send, call_.receive, n, type_, op, comm_, call_.stream);
      case Verb::broadcast:
        return api_.Broadcast(call_.send, call_.receive, n, type_, call_.root, comm_, call_.stream);
      case Verb::all_gather:
        return api_.AllGather(call_.send, call_.receive, n, type_, comm_, call_.stream);
      case Verb::reduce_scatter:
        return api_.ReduceScatter(call_.send, call_.receive, static_cast<std::size_t>(call_.receives[0]), type_, op,
                                  comm_, call_.stream);
      case Verb::all_to_all:
        return exchange_parts();
      case Verb::send_receive:
        return in_groups(1, 2, [&](int) { return send_and_receive(); });
      case Verb::barrier:
        break;
    }
    throw_error(to_text(call_), " is no call of NCCL's");
  }

 private:
  // Makes NCCL's calls of all steps, at most `each` per step, in as few groups as possible. All ranks have the same
  // steps: what one sends in a step another receives in the same step.
  template <class F>
  Result in_groups(int steps, int each, const F& calls) const {
    Result result = nccl::kSuccess;
    for (int first = 0; first < steps; first += std::max(max_grouped_ / each, 1)) {
      const int end = std::min(steps, first + std::max(max_grouped_ / each, 1));
      result = first_error({result, api_.GroupStart()});
      for (int step = first; step < end; ++step) result = first_error({result, calls(step)});
      result = first_error({result, api_.GroupEnd()});
    }
    return result;
  }

  // The first result that is an error, else the result of the last call.
  static Result first_error(std::initializer_list<Result> results) {
    for (const Result result : results)
      if (result != nccl::kSuccess && result != nccl::kInProgress) return result;
    return *(results.end() - 1);
  }

  const std::byte* send_at(std::int64_t element) const {
    return static_cast<const std::byte*>(call_.send) + element * static_cast<std::int64_t>(call_.element_size());
  }
  std::byte* receive_at(std::int64_t element) const {
    return static_cast<std::byte*>(call_.receive) + element * static_cast<std::int64_t>(call_.element_size());
  }

  // Step by step: to the rank `step` places after this one, from the rank `step` places before it.
  Result exchange_parts() const {
    const auto size = static_cast<std::size_t>(size_);
    std::vector<std::int64_t> sent(size), received(size);
    std::exclusive_scan(call_.sends.begin(), call_.sends.end(), sent.begin(), std::int64_t{0});
    std::exclusive_scan(call_.receives.begin(), call_.receives.end(), received.begin(), std::int64_t{0});
    return in_groups(size_, 2, [&](int step) {
      const int to = (rank_ + step) % size_, from = (rank_ - step + size_) % size_;
      const auto t = static_cast<std::size_t>(to), f = static_cast<std::size_t>(from);
      return first_error(
          {send(send_at(sent[t]), call_.sends[t], to), receive(receive_at(received[f]), call_.receives[f], from)});
    });
  }

  Result send_and_receive() const {
    const Result sent = call_.to == Call::kNoRank ? nccl::kSuccess : send(call_.send, call_.sends[0], call_.to);
    const Result received =
        call_.from == Call::kNoRank ? nccl::kSuccess : receive(call_.receive, call_.receives[0], call_.from);
    return first_error({sent, received});
  }

  // No message is sent for a part without elements: sender and receiver both know that.
  Result send(const void* data, std::int64_t n, int peer) const {
    if (n == 0) return nccl::kSuccess;
    return api_.Send(data, static_cast<std::size_t>(n), type_, peer, comm_, call_.stream);
  }
  Result receive(void* data, std::int64_t n, int peer) const {
    if (n == 0) return nccl::kSuccess;
    return api_.Recv(data, static_cast<std::size_t>(n), type_, peer, comm_, call_.stream);
  }

  const Api& api_ = nccl::api();
  const Call& call_;
  int rank_, size_, max_grouped_;
  Comm comm_;
  nccl::Type type_;
};

class NcclBackend : public Backend {
 public:
  NcclBackend(std::shared_ptr<Session> session, std::shared_ptr<Handle> handle)
      : session_(std::move(session)), handle_(std::move(handle)) {
    nccl::api().CommCount(handle_->comm, &size_);
    nccl::api().CommUserRank(handle_->comm, &rank_);
  }
  ~NcclBackend() override {
    try {
      if (std::uncaught_exceptions() == 0) session_->wait_for_operations();
    } catch (const Error&) {  // all are aborted already
    }
    session_->destroy(handle_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool has_failed() const override { return session_->has_failed(); }
  bool may_overlap() const override { return nccl::api().orders_launches; }
  bool prefers_equal_parts() const override { return true; }  // unequal ones take n broadcasts or reductions, n rings

  void run(const Call& call, const std::string& what) override {
    const bool is_reduced = call.verb == Verb::all_reduce || call.verb == Verb::reduce_scatter;
    ISOBAR_CHECK(!is_reduced || call.dtype, to_text(call), ": bytes have no sum");
    if (call.verb == Verb::send_receive && call.to == Call::kNoRank && call.from == Call::kNoRank) return;
    session_->throw_if_failed();
    const bool waits = session_->own_stream() != nullptr && current_stream() == nullptr;
    const StreamScope scope(waits ? session_->own_stream() : share_current_stream());
    try {
      if (call.verb == Verb::barrier)
        meet(what);
      else if (call.device.kind == DeviceKind::cpu)
        run_for_host(call, to_text(call), what);
      else
        launch(call, to_text(call), what);
      if (waits) gpu::synchronize(session_->device(), current_stream());
    } catch (const Error&) {
      session_->throw_if_failed();  // the reason why work in the stream has failed
      throw;
    }
    if (waits) session_->throw_if_failed();
  }

  std::unique_ptr<Backend> split(int color, int key) override {
    ISOBAR_CHECK(color >= 0, "a group is split by colors from 0 on, not ", color);
    session_->wait_for_operations();
    std::vector<int> members = members_of(color, key);
    return std::make_unique<NcclBackend>(session_, session_->split(handle_, color, key, std::move(members), kSplit));
  }

 private:
  // The ranks that pass the same color, as numbers in the world, ordered by their keys.
  std::vector<int> members_of(int color, int key) {
    const std::array<std::int64_t, 2> mine{color, key};
    std::vector<std::array<std::int64_t, 2>> all(static_cast<std::size_t>(size_));
    const std::int64_t bytes = sizeof mine;
    const std::vector<std::int64_t> parts(static_cast<std::size_t>(size_), bytes);
    run({.verb = Verb::all_gather, .send = mine.data(), .receive = all.data(), .sends = {&bytes, 1}, .receives = parts},
        kSplit);
    std::vector<std::pair<std::int64_t, int>> chosen;  // key, rank of this group
    for (int r = 0; r < size_; ++r)
      if (all[static_cast<std::size_t>(r)][0] == color) chosen.emplace_back(all[static_cast<std::size_t>(r)][1], r);
    std::ranges::sort(chosen);
    std::vector<int> members;
    for (const auto& [its_key, r] : chosen) members.push_back(handle_->members[static_cast<std::size_t>(r)]);
    return members;
  }

  void launch(Call call, const std::string& text, const std::string& what) {
    ISOBAR_CHECK(call.device == session_->device(), text, ", ", what, ": its buffers lie on ",
                 name_of(call.device.kind), ' ', call.device.index, ", and this rank's device is ",
                 name_of(session_->device().kind), ' ', session_->device().index);
    call.stream = current_stream();
    session_->enqueue(handle_, call.stream, concat(text, ", ", what),
                      [&](Comm comm) { return Translation(call, rank_, size_, session_->max_grouped(), comm).put(); });
  }

  // Through device memory. Returns when the call is complete.
  void run_for_host(const Call& call, const std::string& text, const std::string& what) {
    const Device device = session_->device();
    const std::size_t size = call.element_size();
    const std::size_t sent = static_cast<std::size_t>(call.sent()) * size;
    const std::size_t received = static_cast<std::size_t>(call.received()) * size;
    // An equal address is not enough: in place, a part may begin where the whole does (comm/host_copies.h).
    const bool in_place = call.send == call.receive && sent == received;
    const Storage send(sent, device), receive(in_place ? 0 : received, device);
    Call staged = call;
    staged.device = device;
    staged.send = send.data();
    staged.receive = in_place ? send.data() : receive.data();
    copy_bytes(send.data(), device, call.send, Device{}, sent);
    launch(staged, text, what);
    copy_bytes(call.receive, Device{}, staged.receive, device, received);
    gpu::synchronize(device, current_stream());
    session_->throw_if_failed();
  }

  void meet(const std::string& what) {
    double nothing = 0;
    const std::int64_t one = 1;
    run_for_host({.verb = Verb::all_reduce,
                  .dtype = DType::fp64,
                  .send = &nothing,
                  .receive = &nothing,
                  .sends = {&one, 1},
                  .receives = {&one, 1}},
                 "barrier", what);
  }

  std::shared_ptr<Session> session_;
  std::shared_ptr<Handle> handle_;
  int rank_ = 0, size_ = 1;
};

}  // namespace

void check_nccl(Device device) {
  ISOBAR_CHECK(device.kind != DeviceKind::cpu,
               "NCCL is for GPUs, and the device is cpu: ranks on CPUs are threads or communicate by MPI");
  ISOBAR_CHECK(std::getenv("NCCL_COMM_BLOCKING") == nullptr,
               "NCCL_COMM_BLOCKING is set: isobar chooses itself which of NCCL's calls wait; unset it");
  const Api& api = nccl::api();
  const bool is_emulated = device.kind == DeviceKind::emulator;
  ISOBAR_CHECK(is_emulated ? api.is_stand_in : api.serves_gpus, "device ", name_of(device.kind),
               is_emulated ? ": the library libnccl.so.2 that was found is NVIDIA's own, which needs GPUs"
                           : ": the library libnccl.so.2 that was found is a stand-in for tests without a GPU");
}

std::string nccl_version() {
  return nccl::name_of_version(nccl::api().version);
}

namespace {

// NCCL_DEBUG_FILE of this process: %h is the host, %p the process id.
std::string log_file() {
  const char* pattern = std::getenv("NCCL_DEBUG_FILE");
  std::string file;
  for (std::string_view rest = pattern == nullptr ? "" : pattern; !rest.empty(); rest.remove_prefix(1)) {
    const bool is_host = rest.starts_with("%h"), is_process = rest.starts_with("%p");
    file += is_host ? host_name() : is_process ? std::to_string(::getpid()) : std::string(1, rest[0]);
    if (is_host || is_process) rest.remove_prefix(1);
  }
  return file;
}

// From the line "... NCCL INFO Using network NAME".
std::string network_in_log() {
  const std::string file = log_file();
  if (!std::filesystem::is_regular_file(file)) return "";
  std::ifstream in(file);
  constexpr std::string_view kSays = "Using network ";
  for (std::string line; std::getline(in, line);)
    if (const std::size_t at = line.find(kSays); at != line.npos) return line.substr(at + kSays.size());
  return "";
}

}  // namespace

std::string describe_nccl() {
  const Api& api = nccl::api();
  std::string network = network_in_log();
  const char* chosen = std::getenv("NCCL_NET");
  if (network.empty() && chosen != nullptr) network = concat(chosen, " (NCCL_NET)");
  return concat("NCCL ", nccl_version(), " from ", api.file, ", network ",
                network.empty() ? "not known here: NCCL_DEBUG=INFO lets NCCL write it into the run folder" : network,
                api.orders_launches ? "" : "; without an order of launches: groups on one GPU do not overlap");
}

void keep_nccl_log(const std::string& folder) {
  if (std::getenv("NCCL_DEBUG") == nullptr || std::getenv("NCCL_DEBUG_FILE") != nullptr) return;
  std::error_code ignored;  // code that must write there reports it
  std::filesystem::create_directories(folder, ignored);
  ::setenv("NCCL_DEBUG_FILE", concat(folder, "/nccl.%h.%p").c_str(), 0);
}

std::string make_nccl_id() {
  const Api& api = nccl::api();
  nccl::UniqueId id{};
  const Result result = api.GetUniqueId(&id);
  ISOBAR_CHECK(result == nccl::kSuccess, "NCCL gives no id: ", api.GetErrorString(result), ": ",
               api.GetLastError(nullptr));
  return {id.bytes, sizeof id.bytes};
}

NcclWorld start_nccl(const NcclRanks& options) {
  ISOBAR_CHECK(options.rank >= 0 && options.rank < options.ranks, "rank ", options.rank, " of ", options.ranks);
  check_nccl(options.device);
  nccl::UniqueId id{};
  ISOBAR_CHECK(options.id.size() == sizeof id.bytes, "an id of NCCL has ", sizeof id.bytes, " bytes, and this one ",
               options.id.size());
  options.id.copy(id.bytes, sizeof id.bytes);
  const auto session = std::make_shared<Session>(options);
  const auto handle = session->create_world(id);
  const auto stop = [weak = std::weak_ptr(session)](const std::string& why) {
    if (const auto alive = weak.lock()) alive->fail(why, false);
  };
  return {Communicator(std::make_unique<NcclBackend>(session, handle)), stop};
}

}  // namespace isobar
