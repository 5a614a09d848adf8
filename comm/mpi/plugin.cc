// isobar_mpi.so: the table of comm/mpi/plugin.h on any MPI 3.
#include "comm/mpi/plugin.h"

#include <mpi.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

namespace isobar {

struct MpiGroup {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0, size = 1;
};

// One call as operations of MPI: several if it had to be cut.
struct MpiRequest {
  std::vector<MPI_Request> operations;
  std::vector<int> counts, offsets;  // MPI reads them until the operation ends
  std::vector<std::byte> result;     // if it could not be computed in place
  void* result_to = nullptr;
};

namespace {

constexpr int kTag = 1;  // all ranks make the calls of a group in one order, so messages need no other tag

std::int64_t max_elements = INT_MAX;
MPI_Op largest_double = MPI_OP_NULL, largest_float = MPI_OP_NULL;
std::deque<MpiGroup> groups;  // until the end; the first is the world

const char* sentence_of(int code) {
  static thread_local std::string sentence;
  if (code == MPI_SUCCESS) return nullptr;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  sentence = "MPI: " + std::string(text, static_cast<std::size_t>(length));
  return sentence.c_str();
}

// MPI_MAX may drop a NaN.
template <class T>
void keep_largest(void* from, void* to, int* n, MPI_Datatype* /*type*/) {
  const T* x = static_cast<const T*>(from);
  T* y = static_cast<T*>(to);
  for (int i = 0; i < *n; ++i)
    if (x[i] > y[i] || x[i] != x[i]) y[i] = x[i];
}

MPI_Datatype type_of(const Call& call) {
  switch (call.element_size()) {
    case 8:
      return MPI_DOUBLE;
    case 4:
      return call.dtype == DType::i32 ? MPI_INT32_T : MPI_FLOAT;
    case 2:
      return MPI_UINT16_T;
    default:
      return MPI_BYTE;
  }
}

MPI_Op operation_of(const Call& call) {
  if (call.reduce == Reduce::sum) return MPI_SUM;
  return call.dtype == DType::fp64 ? largest_double : call.dtype == DType::fp32 ? largest_float : MPI_MAX;
}

class Beginning {
 public:
  Beginning(const MpiGroup& group, const Call& call, MpiRequest& request)
      : group_(group), call_(call), request_(request), size_(static_cast<std::int64_t>(call.element_size())) {}

  int begin() {
    switch (call_.verb) {
      case Verb::all_reduce:
        return in_pieces(call_.sent(), [&](std::int64_t first, int n) {
          const bool in_place = call_.send == call_.receive;
          return MPI_Iallreduce(in_place ? MPI_IN_PLACE : sent(first), received(first), n, type_of(call_),
                                operation_of(call_), group_.comm, next());
        });
      case Verb::broadcast:
        return broadcast(call_.root, 0, call_.received());
      case Verb::all_gather:
        return all_gather();
      case Verb::reduce_scatter:
        return reduce_scatter();
      case Verb::all_to_all:
        return exchange_all();
      case Verb::send_receive:
        return exchange(call_.to, 0, call_.sent(), call_.from, 0, call_.received());
      case Verb::barrier:
        return MPI_Ibarrier(group_.comm, next());
    }
    return MPI_ERR_OTHER;
  }

 private:
  const std::byte* sent(std::int64_t first) const { return static_cast<const std::byte*>(call_.send) + first * size_; }
  std::byte* received(std::int64_t first) const { return static_cast<std::byte*>(call_.receive) + first * size_; }
  MPI_Request* next() {
    request_.operations.push_back(MPI_REQUEST_NULL);
    return &request_.operations.back();
  }

  template <class Begin>
  int in_pieces(std::int64_t total, const Begin& begin_piece) {
    // MPI keeps no pointer to a request after it has begun: the vector may grow.
    for (std::int64_t first = 0; first < total; first += max_elements) {
      const int code = begin_piece(first, static_cast<int>(std::min(max_elements, total - first)));
      if (code != MPI_SUCCESS) return code;
    }
    return MPI_SUCCESS;
  }

  int broadcast(int root, std::int64_t at, std::int64_t total) {
    return in_pieces(total, [&](std::int64_t first, int n) {
      return MPI_Ibcast(received(at + first), n, type_of(call_), root, group_.comm, next());
    });
  }

  // Fills the lists of counts and offsets; false if an int of MPI cannot hold them.
  bool fits(Counts counts) {
    std::int64_t offset = 0;
    for (const std::int64_t count : counts) {
      request_.counts.push_back(static_cast<int>(count));
      request_.offsets.push_back(static_cast<int>(offset));
      offset += count;
      if (offset > max_elements) return false;
    }
    return true;
  }

  int all_gather() {
    const std::int64_t own = offset_of(call_.receives, group_.rank);
    const bool in_place = call_.send == received(own);
    const MPI_Datatype type = type_of(call_);
    if (fits(call_.receives))
      return MPI_Iallgatherv(in_place ? MPI_IN_PLACE : call_.send, static_cast<int>(call_.sent()), type, call_.receive,
                             request_.counts.data(), request_.offsets.data(), type, group_.comm, next());
    if (!in_place) std::memcpy(received(own), call_.send, static_cast<std::size_t>(call_.sent() * size_));
    std::int64_t at = 0;
    for (int r = 0; r < group_.size; ++r) {
      const std::int64_t count = call_.receives[static_cast<std::size_t>(r)];
      if (const int code = broadcast(r, at, count); code != MPI_SUCCESS) return code;
      at += count;
    }
    return MPI_SUCCESS;
  }

  int reduce_scatter() {
    // In place the result lies within the input, which MPI cannot express.
    request_.result.resize(static_cast<std::size_t>(call_.received() * size_));
    request_.result_to = call_.receive;
    std::byte* result = request_.result.data();
    const MPI_Datatype type = type_of(call_);
    if (fits(call_.sends))
      return MPI_Ireduce_scatter(call_.send, result, request_.counts.data(), type, operation_of(call_), group_.comm,
                                 next());
    std::int64_t at = 0;
    for (int r = 0; r < group_.size; ++r) {
      const std::int64_t count = call_.sends[static_cast<std::size_t>(r)];
      const int code = in_pieces(count, [&](std::int64_t first, int n) {
        return MPI_Ireduce(sent(at + first), r == group_.rank ? result + first * size_ : nullptr, n, type,
                           operation_of(call_), r, group_.comm, next());
      });
      if (code != MPI_SUCCESS) return code;
      at += count;
    }
    return MPI_SUCCESS;
  }

  int exchange(int to, std::int64_t send_at, std::int64_t sends, int from, std::int64_t receive_at,
               std::int64_t receives) {
    if (to == group_.rank && from == group_.rank) {
      if (sends != receives) return MPI_ERR_TRUNCATE;
      if (sends > 0) std::memmove(received(receive_at), sent(send_at), static_cast<std::size_t>(sends * size_));
      return MPI_SUCCESS;
    }
    if (from != Call::kNoRank) {
      const int code = in_pieces(receives, [&](std::int64_t first, int n) {
        return MPI_Irecv(received(receive_at + first), n, type_of(call_), from, kTag, group_.comm, next());
      });
      if (code != MPI_SUCCESS) return code;
    }
    if (to == Call::kNoRank) return MPI_SUCCESS;
    return in_pieces(sends, [&](std::int64_t first, int n) {
      return MPI_Isend(sent(send_at + first), n, type_of(call_), to, kTag, group_.comm, next());
    });
  }

  int exchange_all() {
    std::int64_t send_at = 0, receive_at = 0;
    for (int r = 0; r < group_.size; ++r) {
      const std::int64_t sends = call_.sends[static_cast<std::size_t>(r)];
      const std::int64_t receives = call_.receives[static_cast<std::size_t>(r)];
      const int code = exchange(r, send_at, sends, r, receive_at, receives);
      if (code != MPI_SUCCESS) return code;
      send_at += sends;
      receive_at += receives;
    }
    return MPI_SUCCESS;
  }

  const MpiGroup& group_;
  const Call& call_;
  MpiRequest& request_;
  const std::int64_t size_;
};

MpiGroup* add_group(MPI_Comm comm) {
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  MpiGroup group{.comm = comm};
  MPI_Comm_rank(comm, &group.rank);
  MPI_Comm_size(comm, &group.size);
  groups.push_back(group);
  return &groups.back();
}

const char* start() {
  int given = 0;
  // Only one thread of the process calls MPI.
  if (const char* wrong = sentence_of(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &given))) return wrong;
  add_group(MPI_COMM_WORLD);
  MPI_Op_create(keep_largest<double>, 1, &largest_double);
  MPI_Op_create(keep_largest<float>, 1, &largest_float);
  return nullptr;
}

const char* split(const MpiGroup* group, int color, int key, MpiGroup** part) {
  MPI_Comm comm = MPI_COMM_NULL;
  const char* wrong = sentence_of(MPI_Comm_split(group->comm, color, key, &comm));
  if (wrong == nullptr) *part = add_group(comm);
  return wrong;
}

const char* begin(const MpiGroup* group, const Call* call, MpiRequest** request) {
  *request = new MpiRequest;
  return sentence_of(Beginning(*group, *call, **request).begin());
}

const char* test(MpiRequest* request, bool* is_done) {
  int flag = 0;
  const int code =
      MPI_Testall(static_cast<int>(request->operations.size()), request->operations.data(), &flag, MPI_STATUSES_IGNORE);
  if (const char* wrong = sentence_of(code)) return wrong;
  *is_done = flag != 0;
  if (!*is_done) return nullptr;
  if (!request->result.empty()) std::memcpy(request->result_to, request->result.data(), request->result.size());
  delete request;
  return nullptr;
}

constexpr MpiPlugin kPlugin{.version = kMpiPluginVersion,
#ifdef OPEN_MPI
                            .is_open_mpi = true,
#else
                            .is_open_mpi = false,
#endif
                            .start = start,
                            .finish = [] { MPI_Finalize(); },
                            .abort = [](int status) { MPI_Abort(MPI_COMM_WORLD, status); },
                            .world = []() { return &groups.front(); },
                            .rank = [](const MpiGroup* group) { return group->rank; },
                            .size = [](const MpiGroup* group) { return group->size; },
                            .split = split,
                            .begin = begin,
                            .test = test,
                            .set_max_elements = [](std::int64_t most) { max_elements = most; }};

}  // namespace
}  // namespace isobar

extern "C" const isobar::MpiPlugin* isobar_mpi_plugin();
extern "C" const isobar::MpiPlugin* isobar_mpi_plugin() {
  return &isobar::kPlugin;
}
