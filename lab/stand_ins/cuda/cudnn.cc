// libcudnn.so.9 for the virtual GPU: convolutions by plain loops, through the graph interface as isobar declares it
// (kernels/conv/cudnn_api.h). Every misuse of a descriptor ends the test: the rules are those of NVIDIA's reference of
// the backend descriptors, and the strictest where it is silent (a descriptor lives as long as another one refers to
// it). Two habits of version 9.19 are kept: a count of results may be too large before they are read, and a count of
// knobs is that of the elements written.
//
// Most of its engines are traps, and they are the fastest and the first: each does what its notes say, or what no note
// says. A program that filters wrongly has other bits, or another error.
#include "kernels/conv/cudnn_api.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lab/stand_ins/cuda/library.h"
#include "tests/harness/tensor_core.h"

namespace isobar::cudnn {
struct Context {
  Stream stream = nullptr;
  bool has_stream = false;
};
}  // namespace isobar::cudnn

namespace isobar::virtual_gpu {
namespace {

using namespace cudnn;

Driver& loaded_driver() {
  return virtual_gpu::loaded_driver("libcudnn");
}

thread_local std::string answer;

Status status_of(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return CUDNN_STATUS_SUCCESS;
    case cudaErrorInvalidValue:
      return CUDNN_STATUS_BAD_PARAM;
    case cudaErrorNotSupported:
      return CUDNN_STATUS_NOT_SUPPORTED;
    case cudaErrorLaunchFailure:
      return CUDNN_STATUS_EXECUTION_FAILED;
    default:
      return CUDNN_STATUS_INTERNAL_ERROR;
  }
}

Status answer_to(const char* function, const std::function<void()>& body) {
  answer.clear();
  const Status status = status_of(loaded_driver().call(function, body));
  if (status != CUDNN_STATUS_SUCCESS) answer = loaded_driver().explain(cudaErrorUnknown);
  return status;
}

template <class... Parts>
[[noreturn]] void wrong(const Parts&... parts) {
  misuse(cudaErrorInvalidValue, parts...);
}

// ---- Descriptors ----------------------------------------------------------------------------------------------------

struct Object;
using SharedObject = std::shared_ptr<Object>;

struct Attribute {
  std::int64_t count = 0;
  std::vector<std::byte> bytes = {};
  std::vector<SharedObject> objects = {};

  template <class T>
  T at(std::int64_t i) const {
    T value{};
    std::memcpy(&value, bytes.data() + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
    return value;
  }
  std::vector<std::int64_t> numbers() const {
    std::vector<std::int64_t> all;
    for (std::int64_t i = 0; i < count; ++i) all.push_back(at<std::int64_t>(i));
    return all;
  }
};

struct Object {
  DescriptorType type;
  bool is_final = false, is_destroyed = false;
  std::map<AttributeName, Attribute> attributes = {};

  const Attribute& get(AttributeName name) const { return attributes.at(name); }
  bool has(AttributeName name) const { return attributes.contains(name); }
  template <class T>
  T value(AttributeName name) const {
    return get(name).at<T>(0);
  }
  const Object& object(AttributeName name) const { return *get(name).objects.at(0); }
};

// What may be set, and must be set before the end.
struct Rule {
  DescriptorType of;
  AttributeName name;
  AttributeType type;
  std::int64_t min_count, max_count;
  bool is_required = true;
  DescriptorType element = {};  // of a descriptor
};

constexpr std::int64_t kMaxDimensions = 8;
constexpr Rule operation_rule(DescriptorType of, AttributeName name, AttributeType type, DescriptorType element = {}) {
  return {of, name, type, 1, 1, true, element};
}
#define ISOBAR_OPERATION(TYPE, NAME, X, Y, W)                                                                  \
  operation_rule(TYPE, CUDNN_ATTR_OPERATION_CONVOLUTION_##NAME##_ALPHA, CUDNN_TYPE_FLOAT),                     \
      operation_rule(TYPE, CUDNN_ATTR_OPERATION_CONVOLUTION_##NAME##_BETA, CUDNN_TYPE_FLOAT),                  \
      operation_rule(TYPE, CUDNN_ATTR_OPERATION_CONVOLUTION_##NAME##_CONV_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, \
                     CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR),                                                    \
      operation_rule(TYPE, CUDNN_ATTR_OPERATION_CONVOLUTION_##NAME##_##X, CUDNN_TYPE_BACKEND_DESCRIPTOR,       \
                     CUDNN_BACKEND_TENSOR_DESCRIPTOR),                                                         \
      operation_rule(TYPE, CUDNN_ATTR_OPERATION_CONVOLUTION_##NAME##_##Y, CUDNN_TYPE_BACKEND_DESCRIPTOR,       \
                     CUDNN_BACKEND_TENSOR_DESCRIPTOR),                                                         \
      operation_rule(TYPE, CUDNN_ATTR_OPERATION_CONVOLUTION_##NAME##_##W, CUDNN_TYPE_BACKEND_DESCRIPTOR,       \
                     CUDNN_BACKEND_TENSOR_DESCRIPTOR)

constexpr auto kFwd = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
constexpr auto kBwdData = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
constexpr auto kBwdFilter = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;

constexpr Rule kRules[] = {
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 3, kMaxDimensions},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 3, kMaxDimensions},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, 1},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, 1},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, 1},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, 1},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, 3},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, 3},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, 3},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, 3},
    ISOBAR_OPERATION(kFwd, FORWARD, X, Y, W),
    ISOBAR_OPERATION(kBwdData, BWD_DATA, DX, DY, W),
    ISOBAR_OPERATION(kBwdFilter, BWD_FILTER, X, DY, DW),
    {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, 1},
    {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1,
     true, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, 1},
    {CUDNN_BACKEND_ENGINE_DESCRIPTOR, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, true,
     CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR},
    {CUDNN_BACKEND_ENGINE_DESCRIPTOR, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, 1},
    {CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, 1},
    {CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, 1},
    {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, true,
     CUDNN_BACKEND_ENGINE_DESCRIPTOR},
    {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 64, false,
     CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR},
    {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, 1},
    {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
     1, true, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 1, 64},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 1, 64},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, 1},
};

std::size_t size_of(AttributeType type) {
  const bool is_wide = type == CUDNN_TYPE_HANDLE || type == CUDNN_TYPE_INT64 || type == CUDNN_TYPE_VOID_PTR ||
                       type == CUDNN_TYPE_BACKEND_DESCRIPTOR;
  return is_wide ? 8 : 4;
}

// Of the whole program.
struct Objects {
  std::mutex mutex;
  std::map<Descriptor, SharedObject> descriptors;
  std::set<Handle> handles;
  static Objects& instance() {
    static auto* objects = new Objects;
    return *objects;
  }
};

SharedObject object_of(Descriptor descriptor) {
  Objects& all = Objects::instance();
  const std::lock_guard lock(all.mutex);
  const auto found = all.descriptors.find(descriptor);
  if (found == all.descriptors.end()) wrong("a descriptor that does not exist, or was destroyed, is used");
  return found->second;
}

void check_handle(Handle handle) {
  Objects& all = Objects::instance();
  const std::lock_guard lock(all.mutex);
  if (!all.handles.contains(handle)) wrong("a handle that does not exist is used");
}

const Rule& rule_of(DescriptorType type, AttributeName name) {
  for (const Rule& rule : kRules)
    if (rule.of == type && rule.name == name) return rule;
  wrong("a descriptor of type ", static_cast<int>(type), " has no attribute ", static_cast<int>(name),
        " that can be set");
}

void require_final(const Object& object, const char* use) {
  if (!object.is_final) wrong("a descriptor of type ", static_cast<int>(object.type), " is not finalized and ", use);
}

// Of all that it is made of.
void require_living(const Object& object) {
  if (object.is_destroyed)
    wrong("a descriptor of type ", static_cast<int>(object.type), " was destroyed, and another one is made of it");
  for (const auto& [name, attribute] : object.attributes)
    for (const SharedObject& part : attribute.objects) require_living(*part);
}

void set_attribute(Object& object, AttributeName name, AttributeType type, std::int64_t count, const void* elements) {
  if (object.is_final) wrong("attribute ", static_cast<int>(name), " is set after its descriptor was finalized");
  const Rule& rule = rule_of(object.type, name);
  if (type != rule.type)
    wrong("attribute ", static_cast<int>(name), " is of type ", static_cast<int>(rule.type), ", and given as ",
          static_cast<int>(type));
  if (count < rule.min_count || count > rule.max_count)
    wrong("attribute ", static_cast<int>(name), " has ", rule.min_count, " to ", rule.max_count,
          " elements, and is given ", count);
  Attribute attribute{.count = count};
  attribute.bytes.resize(static_cast<std::size_t>(count) * size_of(type));
  std::memcpy(attribute.bytes.data(), elements, attribute.bytes.size());
  if (type == CUDNN_TYPE_HANDLE) check_handle(attribute.at<Handle>(0));
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
    for (std::int64_t i = 0; i < count; ++i) {
      const SharedObject part = object_of(attribute.at<Descriptor>(i));
      require_final(*part, "is part of another one");
      if (rule.element != DescriptorType{} && part->type != rule.element)
        wrong("attribute ", static_cast<int>(name), " is given a descriptor of type ", static_cast<int>(part->type));
      attribute.objects.push_back(part);
    }
  object.attributes[name] = std::move(attribute);
}

// ---- A convolution --------------------------------------------------------------------------------------------------

struct Tensor {
  std::vector<std::int64_t> sizes, strides;  // rows, channels, three extents
  DType dtype;
  std::int64_t id, alignment;

  std::size_t bytes() const {
    std::int64_t elements = 1;
    for (const std::int64_t size : sizes) elements *= size;
    return static_cast<std::size_t>(elements) * isobar::size_of(dtype);
  }
};

struct Axis {
  std::int64_t in, out, kernel, stride, before, behind;
};

struct Problem {
  DescriptorType kind;
  Tensor x, weight, y;
  std::array<Axis, 3> axes;

  const Tensor& written() const { return kind == kFwd ? y : kind == kBwdData ? x : weight; }
  std::uint64_t hash() const {
    std::uint64_t sum = mix(0, kind);
    for (const Tensor* tensor : {&x, &weight, &y})
      for (const std::int64_t size : tensor->sizes) sum = mix(sum, static_cast<std::uint64_t>(size));
    return mix(sum, static_cast<std::uint64_t>(x.dtype));
  }
};

DType dtype_of(DataType type) {
  if (type == CUDNN_DATA_FLOAT) return DType::fp32;
  if (type == CUDNN_DATA_BFLOAT16) return DType::bf16;
  if (type == CUDNN_DATA_HALF) return DType::fp16;
  wrong("data of type ", static_cast<int>(type), " is no floating-point number that is convolved here");
}

// Dimensions in memory without holes, in any order.
void check_tensor(const Object& object) {
  const std::vector<std::int64_t> sizes = object.get(CUDNN_ATTR_TENSOR_DIMENSIONS).numbers();
  const std::vector<std::int64_t> strides = object.get(CUDNN_ATTR_TENSOR_STRIDES).numbers();
  if (sizes.size() != strides.size())
    wrong("a tensor has ", sizes.size(), " dimensions and ", strides.size(), " strides");
  std::vector<std::pair<std::int64_t, std::int64_t>> by_stride;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] < 1) wrong("a tensor has a dimension of ", sizes[d]);
    if (sizes[d] > 1) by_stride.emplace_back(strides[d], sizes[d]);
  }
  std::sort(by_stride.begin(), by_stride.end());
  std::int64_t inner = 1;
  for (const auto& [stride, size] : by_stride) {
    if (stride != inner) wrong("a tensor's strides do not fit its dimensions: ", stride, " where ", inner, " fits");
    inner *= size;
  }
  const auto alignment = object.value<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  const auto element = isobar::size_of(dtype_of(object.value<DataType>(CUDNN_ATTR_TENSOR_DATA_TYPE)));
  if (alignment < static_cast<std::int64_t>(element) || !std::has_single_bit(static_cast<std::uint64_t>(alignment)))
    wrong("a tensor is aligned to ", alignment, " bytes");
}

void check_convolution(const Object& object) {
  const auto axes = object.value<std::int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
  for (const AttributeName name : {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES,
                                   CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS}) {
    const std::vector<std::int64_t> numbers = object.get(name).numbers();
    if (static_cast<std::int64_t>(numbers.size()) != axes)
      wrong("a convolution of ", axes, " axes has ", numbers.size(), " numbers for attribute ", static_cast<int>(name));
    const bool is_padding = name == CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS || name == CUDNN_ATTR_CONVOLUTION_POST_PADDINGS;
    for (const std::int64_t number : numbers)
      if (number < (is_padding ? 0 : 1)) wrong("attribute ", static_cast<int>(name), " of a convolution is ", number);
  }
  if (object.value<DataType>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) != CUDNN_DATA_FLOAT)
    wrong("a convolution does not sum in fp32");
  if (object.value<ConvolutionMode>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) != CUDNN_CROSS_CORRELATION)
    wrong("a convolution turns its kernel around");
}

// With three extents, the missing ones first.
Tensor tensor_of(const Object& object) {
  Tensor tensor{.sizes = object.get(CUDNN_ATTR_TENSOR_DIMENSIONS).numbers(),
                .strides = object.get(CUDNN_ATTR_TENSOR_STRIDES).numbers(),
                .dtype = dtype_of(object.value<DataType>(CUDNN_ATTR_TENSOR_DATA_TYPE)),
                .id = object.value<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID),
                .alignment = object.value<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)};
  while (tensor.sizes.size() < 5) {
    tensor.sizes.insert(tensor.sizes.begin() + 2, 1);
    tensor.strides.insert(tensor.strides.begin() + 2, 0);
  }
  return tensor;
}

Problem problem_of(const Object& operation) {
  const auto named = [&](AttributeName fwd, AttributeName bwd_data, AttributeName bwd_filter) -> const Object& {
    return operation.object(operation.type == kFwd ? fwd : operation.type == kBwdData ? bwd_data : bwd_filter);
  };
  Problem p{
      .kind = operation.type,
      .x = tensor_of(named(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X)),
      .weight = tensor_of(named(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW)),
      .y = tensor_of(named(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY)),
      .axes = {}};
  const Object& convolution =
      named(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC);
  const auto stated = static_cast<std::size_t>(convolution.value<std::int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS));
  for (std::size_t a = 0; a < 3; ++a) {
    const auto number = [&](AttributeName name, std::int64_t otherwise) {
      return a + stated < 3 ? otherwise
                            : convolution.get(name).at<std::int64_t>(static_cast<std::int64_t>(a + stated - 3));
    };
    p.axes[a] = {.in = p.x.sizes[2 + a],
                 .out = p.y.sizes[2 + a],
                 .kernel = p.weight.sizes[2 + a],
                 .stride = number(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 1),
                 .before = number(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 0),
                 .behind = number(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 0)};
  }
  return p;
}

void check_operation(const Object& operation) {
  const Problem p = problem_of(operation);
  if (p.x.sizes[0] != p.y.sizes[0]) wrong("x has ", p.x.sizes[0], " samples and y ", p.y.sizes[0]);
  if (p.x.sizes[1] != p.weight.sizes[1]) wrong("x has ", p.x.sizes[1], " channels and the weight ", p.weight.sizes[1]);
  if (p.y.sizes[1] != p.weight.sizes[0]) wrong("y has ", p.y.sizes[1], " channels and the weight ", p.weight.sizes[0]);
  for (const Axis& axis : p.axes) {
    const std::int64_t out = (axis.in + axis.before + axis.behind - axis.kernel) / axis.stride + 1;
    if (out != axis.out) wrong("an axis of y has ", axis.out, " elements, and the convolution makes ", out);
  }
  if (p.x.id == p.weight.id || p.x.id == p.y.id || p.weight.id == p.y.id) wrong("two tensors have one id");
  for (const auto& [name, attribute] : operation.attributes) {
    const bool is_beta = name == CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA ||
                         name == CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA ||
                         name == CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA;
    const bool is_alpha = name == CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA ||
                          name == CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA ||
                          name == CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA;
    if ((is_alpha && attribute.at<float>(0) != 1) || (is_beta && attribute.at<float>(0) != 0))
      refuse(cudaErrorNotSupported, "a convolution that is scaled or added");
  }
}

const Object& operation_of(const Object& graph) {
  return graph.object(CUDNN_ATTR_OPERATIONGRAPH_OPS);
}

// ---- Engines --------------------------------------------------------------------------------------------------------

enum EngineId : std::int64_t {
  kPlain = 0,             // fp32, term by term; the fallback
  kNondeterministic = 1,  // another order each time
  kReducedSums = 2,       // sums in the result's 16 bits, or to TF32's mantissa
  kFft = 3,               // off in the last bits
  kDownConverts = 4,      // rounds fp32 operands to bf16
  kTensorCores = 5,       // 16 bits, or TF32 of fp32; knob 2: how many interleaved sums
  kFailsToPlan = 6,
  kWantsMuch = 7,     // 2 GiB
  kWinograd = 8,      // in 16 bits it rounds on the way
  kDropsLastTap = 9,  // no note says so
  kCompiles = 10,     // at run time
  kFailsToRun = 11,
  kInterleaved = 12,  // fp32; knob 2: how many sums, knob 12: backwards
};

struct Engine {
  EngineId id;
  std::vector<int> notes, behaviour;
  bool only_fp32;
  std::int64_t workspace;
  std::vector<std::vector<std::pair<int, std::int64_t>>> knobs;  // the choices that the heuristics make
};

const std::vector<Engine>& engines() {
  static const std::vector<Engine> all = {
      {kNondeterministic, {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, {}, false, 64, {{}}},
      {kReducedSums, {CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION}, {}, false, 0, {{}}},
      {kFft, {CUDNN_NUMERICAL_NOTE_FFT}, {}, false, 1 << 10, {{}}},
      {kDownConverts, {CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS}, {}, true, 0, {{}}},
      {kFailsToPlan, {}, {}, false, 0, {{}}},
      {kWantsMuch, {}, {}, false, std::int64_t{1} << 31, {{}}},
      {kDropsLastTap, {}, {}, false, 0, {{}}},
      {kFailsToRun, {}, {}, false, 0, {{}}},
      {kCompiles, {}, {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION}, false, 0, {{}}},
      {kWinograd, {CUDNN_NUMERICAL_NOTE_WINOGRAD}, {}, false, 1 << 9, {{}}},
      {kTensorCores, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, {}, false, 256, {{{2, 1}}, {{2, 2}}}},
      {kInterleaved, {}, {}, false, 1 << 12, {{{2, 1}, {12, 0}}, {{2, 3}, {12, 0}}, {{2, 1}, {12, 1}}}},
      {kPlain, {}, {}, false, 0, {{}}},
  };
  return all;
}

const Engine& engine_of(std::int64_t id) {
  for (const Engine& engine : engines())
    if (engine.id == id) return engine;
  refuse(cudaErrorNotSupported, "cuDNN has no engine ", id);
}

// As NVIDIA's 9.19, it has no engine whose result is wider than its operands.
bool serves(const Engine& engine, const Problem& p) {
  const bool is_fp32 = p.x.dtype == DType::fp32;
  return p.x.dtype == p.y.dtype && p.x.dtype == p.weight.dtype && (!engine.only_fp32 || is_fp32);
}

// An engine with its knobs for a problem.
struct Configured {
  EngineId id;
  std::map<int, std::int64_t> knobs;
};

// Terms of one element of the result, with their taps.
struct Term {
  float a, b;
  bool is_last_tap;
};

float sum_in_order(const std::vector<Term>& terms, std::size_t first, std::size_t step, bool on_tensor_cores,
                   bool tf32) {
  float plain = 0;
  testing::TensorCoreSum cut;
  for (std::size_t i = first; i < terms.size(); i += step) {
    const float a = tf32 ? round_to_tf32(terms[i].a) : terms[i].a, b = tf32 ? round_to_tf32(terms[i].b) : terms[i].b;
    if (on_tensor_cores)
      cut.add_product(a, b);
    else
      plain += a * b;
  }
  return on_tensor_cores ? cut.sum() : plain;
}

float interleaved_sum(const std::vector<Term>& terms, std::int64_t parts, bool on_tensor_cores = false,
                      bool tf32 = false) {
  float sum = 0;
  for (std::int64_t part = 0; part < parts; ++part)
    sum += sum_in_order(terms, static_cast<std::size_t>(part), static_cast<std::size_t>(parts), on_tensor_cores, tf32);
  return sum;
}

float rounded(float value, DType dtype) {
  std::array<std::byte, sizeof(float)> memory{};
  store(memory.data(), 0, dtype, value);
  return load(memory.data(), 0, dtype);
}

float sum_of(const Configured& engine, DType dtype, std::vector<Term> terms, std::uint64_t execution) {
  const bool is_fp32 = dtype == DType::fp32;
  const auto knob = [&](int type, std::int64_t otherwise) {
    const auto found = engine.knobs.find(type);
    return found == engine.knobs.end() ? otherwise : found->second;
  };
  float sum = 0;
  switch (engine.id) {
    case kNondeterministic:
      std::rotate(terms.begin(), terms.begin() + static_cast<std::ptrdiff_t>(execution % (terms.size() + 1)),
                  terms.end());
      return interleaved_sum(terms, 1);
    case kReducedSums:
      for (const Term& term : terms)
        sum = is_fp32 ? round_to_tf32(sum + term.a * term.b) : rounded(sum + term.a * term.b, dtype);
      return sum;
    case kFft:
      return interleaved_sum(terms, 1) * (1 + 0x1p-20f);
    case kDownConverts:
      for (Term& term : terms) term = {rounded(term.a, DType::bf16), rounded(term.b, DType::bf16), term.is_last_tap};
      return interleaved_sum(terms, 1);
    case kDropsLastTap:
      std::erase_if(terms, [](const Term& term) { return term.is_last_tap; });
      return interleaved_sum(terms, 1);
    case kTensorCores:
      return interleaved_sum(terms, knob(2, 1), true, is_fp32);
    case kWinograd:
      for (const Term& term : terms) sum += is_fp32 ? term.a * term.b : rounded(term.a * term.b, dtype);
      return sum;
    case kCompiles:
      std::reverse(terms.begin(), terms.end());
      return interleaved_sum(terms, 1);
    case kInterleaved:
      if (knob(12, 0) != 0) std::reverse(terms.begin(), terms.end());
      return interleaved_sum(terms, knob(2, 1));
    default:
      return interleaved_sum(terms, 1);
  }
}

// ---- The numbers ----------------------------------------------------------------------------------------------------

struct Task {
  Problem p;
  Configured engine;
  const void *x, *weight, *y;
  std::uint64_t execution = 0;
};

using Place = std::array<std::int64_t, 5>;  // row, channel, three extents

std::uint64_t index_of(const Tensor& tensor, const Place& place) {
  std::int64_t index = 0;
  for (std::size_t d = 0; d < place.size(); ++d) index += place[d] * tensor.strides[d];
  return static_cast<std::uint64_t>(index);
}

// Calls f(place) for every element.
template <class F>
void for_each_place(const std::vector<std::int64_t>& sizes, const F& f) {
  for (std::int64_t n = 0; n < sizes[0]; ++n)
    for (std::int64_t d = 0; d < sizes[2]; ++d)
      for (std::int64_t h = 0; h < sizes[3]; ++h)
        for (std::int64_t w = 0; w < sizes[4]; ++w)
          for (std::int64_t c = 0; c < sizes[1]; ++c) f(Place{n, c, d, h, w});
}

// Where tap `tap` of the window of `out` lies in x; none if outside.
std::optional<Place> read_by(const Problem& p, const Place& out, const Place& tap) {
  Place in{out[0], tap[1], 0, 0, 0};
  for (std::size_t a = 0; a < 3; ++a) {
    in[2 + a] = out[2 + a] * p.axes[a].stride - p.axes[a].before + tap[2 + a];
    if (in[2 + a] < 0 || in[2 + a] >= p.axes[a].in) return std::nullopt;
  }
  return in;
}

// All products of the convolution, sorted by the element of the result that they belong to, in the order of the taps.
void convolve(const Task& t, Driver& driver) {
  const Problem& p = t.p;
  const std::byte *x = driver.view(t.x), *weight = driver.view(t.weight), *y = driver.view(t.y);
  const Tensor& result = p.written();
  std::vector<std::vector<Term>> terms(result.bytes() / isobar::size_of(result.dtype));
  for_each_place(p.weight.sizes, [&](const Place& tap) {
    const bool is_last =
        tap[2] + 1 == p.axes[0].kernel && tap[3] + 1 == p.axes[1].kernel && tap[4] + 1 == p.axes[2].kernel;
    std::vector<std::int64_t> outs = p.y.sizes;
    outs[1] = 1;
    for_each_place(outs, [&](Place out) {
      out[1] = tap[0];  // y's channel
      const auto in = read_by(p, out, tap);
      if (!in) return;
      const std::uint64_t at_x = index_of(p.x, *in), at_w = index_of(p.weight, tap), at_y = index_of(p.y, out);
      if (p.kind == kFwd)
        terms[at_y].push_back({load(x, at_x, p.x.dtype), load(weight, at_w, p.weight.dtype), is_last});
      else if (p.kind == kBwdData)
        terms[at_x].push_back({load(y, at_y, p.y.dtype), load(weight, at_w, p.weight.dtype), is_last});
      else
        terms[at_w].push_back({load(y, at_y, p.y.dtype), load(x, at_x, p.x.dtype), is_last});
    });
  });
  std::byte* const to = driver.view(p.kind == kFwd ? t.y : p.kind == kBwdData ? t.x : t.weight);
  for (std::size_t i = 0; i < terms.size(); ++i)
    store(to, i, result.dtype, sum_of(t.engine, p.x.dtype, std::move(terms[i]), t.execution));
}

// ---- What descriptors answer ----------------------------------------------------------------------------------------

template <class T>
Attribute attribute_of(const std::vector<T>& values) {
  Attribute attribute{.count = static_cast<std::int64_t>(values.size())};
  attribute.bytes.resize(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(attribute.bytes.data(), values.data(), attribute.bytes.size());
  return attribute;
}
Attribute attribute_of(std::vector<SharedObject> objects) {
  return {.count = static_cast<std::int64_t>(objects.size()), .objects = std::move(objects)};
}

SharedObject made(DescriptorType type, std::map<AttributeName, Attribute> attributes) {
  return std::make_shared<Object>(Object{.type = type, .is_final = true, .attributes = std::move(attributes)});
}

// A configuration that the heuristics suggest.
SharedObject config_of(const SharedObject& graph, const Engine& engine,
                       const std::vector<std::pair<int, std::int64_t>>& choices) {
  std::vector<SharedObject> knobs;
  for (const auto& [type, value] : choices)
    knobs.push_back(made(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,
                         {{CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, attribute_of(std::vector<int>{type})},
                          {CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, attribute_of(std::vector<std::int64_t>{value})}}));
  const SharedObject chosen =
      made(CUDNN_BACKEND_ENGINE_DESCRIPTOR,
           {{CUDNN_ATTR_ENGINE_OPERATION_GRAPH, attribute_of(std::vector<SharedObject>{graph})},
            {CUDNN_ATTR_ENGINE_GLOBAL_INDEX, attribute_of(std::vector<std::int64_t>{engine.id})}});
  std::map<AttributeName, Attribute> attributes{
      {CUDNN_ATTR_ENGINECFG_ENGINE, attribute_of(std::vector<SharedObject>{chosen})}};
  if (!knobs.empty()) attributes[CUDNN_ATTR_ENGINECFG_KNOB_CHOICES] = attribute_of(std::move(knobs));
  return made(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, std::move(attributes));
}

std::vector<SharedObject> suggestions(const Object& heuristics) {
  const SharedObject graph = heuristics.get(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH).objects.at(0);
  const Problem p = problem_of(operation_of(*graph));
  const bool falls_back = heuristics.value<HeurMode>(CUDNN_ATTR_ENGINEHEUR_MODE) == CUDNN_HEUR_MODE_FALLBACK;
  std::vector<SharedObject> configs;
  for (const Engine& engine : engines()) {
    if (!serves(engine, p) || falls_back != (engine.id == kPlain)) continue;
    for (const auto& choices : engine.knobs) configs.push_back(config_of(graph, engine, choices));
  }
  return configs;
}

Configured configured(const Object& config) {
  Configured result{.id = static_cast<EngineId>(
                        config.object(CUDNN_ATTR_ENGINECFG_ENGINE).value<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX)),
                    .knobs = {}};
  if (config.has(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES))
    for (const SharedObject& knob : config.get(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES).objects)
      result.knobs[knob->value<int>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE)] =
          knob->value<std::int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
  return result;
}

const Object& config_of_plan(const Object& plan) {
  return plan.object(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
}
const Object& graph_of_plan(const Object& plan) {
  return config_of_plan(plan).object(CUDNN_ATTR_ENGINECFG_ENGINE).object(CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
}

// Whether every value of every knob of this engine can be taken.
void check_knobs(const Configured& chosen) {
  for (const auto& [type, value] : chosen.knobs) {
    const bool has_knob =
        (chosen.id == kTensorCores && type == 2) || (chosen.id == kInterleaved && (type == 2 || type == 12));
    if (!has_knob || value < 0 || value > 8 || (type == 2 && value == 0))
      refuse(cudaErrorNotSupported, "engine ", static_cast<std::int64_t>(chosen.id), " has no knob ", type, " = ",
             value);
  }
}

void check_whole(const Object& object) {
  for (const Rule& rule : kRules)
    if (rule.of == object.type && rule.is_required && !object.has(rule.name))
      wrong("a descriptor of type ", static_cast<int>(object.type), " is finalized without attribute ",
            static_cast<int>(rule.name));
  require_living(object);
}

void finalize(Object& object) {
  if (object.is_final) wrong("a descriptor of type ", static_cast<int>(object.type), " is finalized twice");
  check_whole(object);
  switch (object.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      check_tensor(object);
      break;
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
      check_convolution(object);
      break;
    case kFwd:
    case kBwdData:
    case kBwdFilter:
      check_operation(object);
      break;
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR: {
      const Engine& engine = engine_of(object.value<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
      if (!serves(engine, problem_of(operation_of(object.object(CUDNN_ATTR_ENGINE_OPERATION_GRAPH)))))
        refuse(cudaErrorNotSupported, "engine ", static_cast<std::int64_t>(engine.id), " does not serve this graph");
      break;
    }
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
      check_knobs(configured(object));
      break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      loaded_driver().refuse_in_capture("plans an engine of cuDNN");
      if (configured(config_of_plan(object)).id == kFailsToPlan)
        refuse(cudaErrorNotSupported, "engine 6 cannot be planned, although it was suggested");
      break;
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
      if (object.get(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS).count !=
          object.get(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).count)
        wrong("a variant pack has another number of pointers than of ids");
      break;
    default:
      break;
  }
  object.is_final = true;
}

// What was set, or follows from it.
Attribute value_of(const Object& object, AttributeName name) {
  const auto engine = [&]() -> const Engine& {
    return engine_of(object.value<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
  };
  if (object.type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR && name == CUDNN_ATTR_ENGINEHEUR_RESULTS)
    return attribute_of(suggestions(object));
  if (object.type == CUDNN_BACKEND_ENGINE_DESCRIPTOR && name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE)
    return attribute_of(engine().notes);
  if (object.type == CUDNN_BACKEND_ENGINE_DESCRIPTOR && name == CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE)
    return attribute_of(engine().behaviour);
  if (object.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)
    return attribute_of(std::vector<std::int64_t>{engine_of(configured(config_of_plan(object)).id).workspace});
  if (object.has(name)) return object.get(name);
  if (object.type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR && name == CUDNN_ATTR_ENGINECFG_KNOB_CHOICES) return {};
  wrong("attribute ", static_cast<int>(name), " of a descriptor of type ", static_cast<int>(object.type),
        " is read and was not set");
}

AttributeType type_read(AttributeName name) {
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
    case CUDNN_ATTR_ENGINECFG_ENGINE:
    case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES:
      return CUDNN_TYPE_BACKEND_DESCRIPTOR;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
      return CUDNN_TYPE_NUMERICAL_NOTE;
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
      return CUDNN_TYPE_BEHAVIOR_NOTE;
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE:
      return CUDNN_TYPE_KNOB_TYPE;
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE:
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      return CUDNN_TYPE_INT64;
    default:
      wrong("attribute ", static_cast<int>(name), " is read, which is nothing that a program needs");
  }
}

constexpr std::int64_t kTooMany = 2;  // more results than there are, where their number alone is asked for

// Returns the count. Descriptors are filled in: the program has made them, of the right type.
std::int64_t get_attribute(const Object& object, AttributeName name, AttributeType type, std::int64_t requested,
                           void* elements) {
  require_final(object, "is read");
  if (type != type_read(name)) wrong("attribute ", static_cast<int>(name), " is read as type ", static_cast<int>(type));
  const Attribute attribute = value_of(object, name);
  if (requested == 0) return name == CUDNN_ATTR_ENGINEHEUR_RESULTS ? attribute.count + kTooMany : 0;
  if (elements == nullptr) wrong("attribute ", static_cast<int>(name), " is read to nowhere");
  const std::int64_t count = std::min(requested, attribute.count);
  if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    if (count > 0) std::memcpy(elements, attribute.bytes.data(), static_cast<std::size_t>(count) * size_of(type));
    return attribute.count;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const SharedObject to = object_of(static_cast<Descriptor*>(elements)[i]);
    const Object& from = *attribute.objects[static_cast<std::size_t>(i)];
    if (to->is_final || to->type != from.type)
      wrong("attribute ", static_cast<int>(name), " is read into a descriptor of type ", static_cast<int>(to->type),
            to->is_final ? ", which is in use" : "");
    *to = from;
    to->is_destroyed = false;
  }
  return count;
}

// ---- Execution ------------------------------------------------------------------------------------------------------

// What no program may use; it depends on the operands.
bool is_trap(EngineId id, DType dtype) {
  if (id == kWinograd) return dtype != DType::fp32;
  return id != kPlain && id != kTensorCores && id != kInterleaved && id != kCompiles;
}

// Simulated. The traps are faster than isobar's own kernels on the virtual GPU, the others faster or slower.
double milliseconds_of(const Problem& p, const Configured& engine) {
  constexpr double kFast = 1e-5, kUnit = 2e-5;
  if (is_trap(engine.id, p.x.dtype)) return kFast;
  std::uint64_t sum =
      mix(mix(environment_number("ISOBAR_VIRTUAL_GPU_DURATIONS", 0), p.hash()), static_cast<std::uint64_t>(engine.id));
  for (const auto& [type, value] : engine.knobs)
    sum = mix(mix(sum, static_cast<std::uint64_t>(type)), static_cast<std::uint64_t>(value));
  return kUnit * static_cast<double>(1 + (mix(sum, 0) >> 40) % 100);
}

void* pointer_of(const Object& pack, const Tensor& tensor) {
  const Attribute &ids = pack.get(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS),
                  &pointers = pack.get(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  for (std::int64_t i = 0; i < ids.count; ++i) {
    if (ids.at<std::int64_t>(i) != tensor.id) continue;
    void* const pointer = pointers.at<void*>(i);
    if (reinterpret_cast<std::uintptr_t>(pointer) % static_cast<std::uintptr_t>(tensor.alignment) != 0)
      wrong("a plan for tensors that are aligned to ", tensor.alignment, " bytes is run on one that is not");
    return pointer;
  }
  wrong("a variant pack has no pointer for tensor ", tensor.id);
}

void execute(Handle handle, const Object& plan, const Object& pack) {
  require_final(plan, "is run");
  require_final(pack, "is run");
  require_living(plan);
  if (plan.type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR || pack.type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
    wrong("what is run is no plan, or not on a variant pack");
  if (plan.value<Handle>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE) != handle) wrong("a plan is run on another handle");
  if (!handle->has_stream) wrong("a handle is used that was given no stream");
  const Problem p = problem_of(operation_of(graph_of_plan(plan)));
  const Configured engine = configured(config_of_plan(plan));
  if (engine.id == kFailsToRun) refuse(cudaErrorLaunchFailure, "engine 11 cannot be run, although it was planned");
  Task task{.p = p,
            .engine = engine,
            .x = pointer_of(pack, p.x),
            .weight = pointer_of(pack, p.weight),
            .y = pointer_of(pack, p.y)};
  if (pack.get(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS).count != 3) wrong("a variant pack has ids of no tensor");
  const auto workspace_bytes = static_cast<std::size_t>(engine_of(engine.id).workspace);
  void* const workspace = pack.value<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  std::vector<Operand> operands{{task.x, p.x.bytes(), "x", p.kind == kBwdData},
                                {task.weight, p.weight.bytes(), "the weight", p.kind == kBwdFilter},
                                {task.y, p.y.bytes(), "y", p.kind == kFwd}};
  if (workspace_bytes > 0) operands.push_back({workspace, workspace_bytes, "the workspace", true});
  Driver& driver = loaded_driver();
  static auto* executions = new std::atomic<std::uint64_t>(0);
  driver.queue(static_cast<cudaStream_t>(handle->stream),
               {.name = concat("convolution by engine ", static_cast<std::int64_t>(engine.id)),
                .run =
                    [task, &driver]() mutable {
                      task.execution = ++*executions;
                      convolve(task, driver);
                    },
                .operands = std::move(operands),
                .milliseconds = milliseconds_of(p, engine)});
}

}  // namespace
}  // namespace isobar::virtual_gpu

using namespace isobar::cudnn;
using namespace isobar::virtual_gpu;
using isobar::Stream;

extern "C" {

Status cudnnCreate(Handle* handle) {
  return answer_to("cudnnCreate", [&] {
    *handle = new Context;
    Objects& all = Objects::instance();
    const std::lock_guard lock(all.mutex);
    all.handles.insert(*handle);
  });
}

Status cudnnSetStream(Handle handle, Stream stream) {
  return answer_to("cudnnSetStream", [&] {
    check_handle(handle);
    *handle = {.stream = stream, .has_stream = true};
  });
}

std::size_t cudnnGetVersion() {
  return environment_number("ISOBAR_VIRTUAL_GPU_CUDNN", 91900);
}

const char* cudnnGetErrorString(Status status) {
  return status == CUDNN_STATUS_NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED" : "an error of cuDNN";
}

void cudnnGetLastErrorString(char* message, std::size_t max_size) {
  if (max_size == 0) return;
  const std::size_t size = std::min(max_size - 1, answer.size());
  std::memcpy(message, answer.data(), size);
  message[size] = '\0';
}

Status cudnnBackendCreateDescriptor(DescriptorType type, Descriptor* descriptor) {
  return answer_to("cudnnBackendCreateDescriptor", [&] {
    const auto object = std::make_shared<Object>(Object{.type = type});
    Objects& all = Objects::instance();
    const std::lock_guard lock(all.mutex);
    all.descriptors[*descriptor = object.get()] = object;
  });
}

Status cudnnBackendDestroyDescriptor(Descriptor descriptor) {
  return answer_to("cudnnBackendDestroyDescriptor", [&] {
    object_of(descriptor)->is_destroyed = true;
    Objects& all = Objects::instance();
    const std::lock_guard lock(all.mutex);
    all.descriptors.erase(descriptor);
  });
}

Status cudnnBackendSetAttribute(Descriptor descriptor, AttributeName name, AttributeType type, std::int64_t count,
                                const void* elements) {
  return answer_to("cudnnBackendSetAttribute",
                   [&] { set_attribute(*object_of(descriptor), name, type, count, elements); });
}

Status cudnnBackendFinalize(Descriptor descriptor) {
  return answer_to("cudnnBackendFinalize", [&] { finalize(*object_of(descriptor)); });
}

Status cudnnBackendGetAttribute(Descriptor descriptor, AttributeName name, AttributeType type, std::int64_t requested,
                                std::int64_t* count, void* elements) {
  return answer_to("cudnnBackendGetAttribute",
                   [&] { *count = get_attribute(*object_of(descriptor), name, type, requested, elements); });
}

Status cudnnBackendExecute(Handle handle, Descriptor plan, Descriptor variant_pack) {
  return answer_to("cudnnBackendExecute", [&] {
    check_handle(handle);
    execute(handle, *object_of(plan), *object_of(variant_pack));
  });
}

}  // extern "C"
