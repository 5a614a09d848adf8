#include "kernels/conv/cudnn.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <sstream>
#include <utility>
#include <vector>

#include "kernels/common/check.h"
#include "kernels/common/notices.h"
#include "kernels/conv/cudnn_api.h"

namespace isobar::cuda {
namespace {

using namespace cudnn;

constexpr std::int64_t kMaxWorkspace = std::int64_t{1} << 30;
constexpr std::int64_t kMaxElements = (std::int64_t{1} << 31) - 1;  // of a tensor
constexpr std::int64_t kMaxNotes = 64, kMaxKnobs = 64;              // of an engine

// ---- The library ----------------------------------------------------------------------------------------------------

// Null if it cannot be loaded.
const Api* loaded() {
  static const std::optional<Api> api = []() -> std::optional<Api> {
    try {
      return load();
    } catch (const Error& error) {
      notice(concat("convolutions do without cuDNN, by isobar's own kernels: ", error.what()));
      return std::nullopt;
    }
  }();
  return api ? &*api : nullptr;
}

const Api& api() {
  return *loaded();
}

std::string name_of_library() {
  return concat("cuDNN ", api().GetVersion());
}

// What the library says of a call that has just failed.
std::string explain(Status status) {
  std::array<char, 1024> details{};
  api().GetLastErrorString(details.data(), details.size());
  const std::string sentence = api().GetErrorString(status);
  return details.front() == '\0' ? sentence : concat(sentence, " (", details.data(), ")");
}

// A computation that the library does not have.
struct Refused {};

bool is_refusal(Status status) {
  return status >= 3000 && status < 4000;
}

void check(Status status, const char* what) {
  if (is_refusal(status)) throw Refused();
  ISOBAR_CHECK(status == CUDNN_STATUS_SUCCESS, "could not ", what, ": ", explain(status));
}

// A device's handle, which serves one stream at a time.
struct OfDevice {
  std::mutex mutex;
  bool is_made = false;
  Handle handle = nullptr;  // null: the library could not start
};

// A lock for each device: one of them may wait for work that another thread has yet to give to another device.
OfDevice& of_device(int device) {
  static auto* mutex = new std::mutex;
  static auto* devices = new std::map<int, OfDevice>;  // elements never move
  const std::lock_guard lock(*mutex);
  return (*devices)[device];
}

// The device is the current one of this thread. Null: not possible.
Handle handle_of(int device) {
  OfDevice& of = of_device(device);
  const std::lock_guard lock(of.mutex);
  if (std::exchange(of.is_made, true)) return of.handle;
  const Status status = api().Create(&of.handle);
  if (status == CUDNN_STATUS_SUCCESS) return of.handle;
  notice(concat("convolutions do without cuDNN, by isobar's own kernels: ", name_of_library(), " cannot start on GPU ",
                device, ": ", explain(status)));
  return of.handle = nullptr;
}

bool wants_own_kernels() {
  const char* value = std::getenv("ISOBAR_CONV");
  const std::string wanted = value == nullptr ? "" : value;
  ISOBAR_CHECK(wanted.empty() || wanted == "own" || wanted == "cudnn", "ISOBAR_CONV is \"", wanted,
               "\"; it may be own or cudnn");
  return wanted == "own";
}

// ---- Descriptors ----------------------------------------------------------------------------------------------------

class Described {
 public:
  explicit Described(DescriptorType type) { check(api().BackendCreateDescriptor(type, &descriptor_), "describe"); }
  ~Described() {
    if (descriptor_ != nullptr) api().BackendDestroyDescriptor(descriptor_);
  }
  Described(Described&& other) noexcept : descriptor_(std::exchange(other.descriptor_, nullptr)) {}
  Described& operator=(Described&& other) = delete;

  template <class T>
  void set(AttributeName name, AttributeType type, std::span<const T> values) {
    check(api().BackendSetAttribute(descriptor_, name, type, static_cast<std::int64_t>(values.size()), values.data()),
          "set an attribute");
  }
  template <class T>
  void set(AttributeName name, AttributeType type, const T& value) {
    set(name, type, std::span<const T>(&value, 1));
  }
  void set(AttributeName name, const Described& other) { set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, other.get()); }
  void set(AttributeName name, std::int64_t value) { set(name, CUDNN_TYPE_INT64, value); }
  void set(AttributeName name, const std::vector<std::int64_t>& values) {
    set(name, CUDNN_TYPE_INT64, std::span<const std::int64_t>(values));
  }
  void finalize(const char* what) { check(api().BackendFinalize(descriptor_), what); }

  // How many elements there are; those for which there is room are written.
  std::int64_t get(AttributeName name, AttributeType type, std::int64_t room, void* elements) const {
    std::int64_t count = 0;
    check(api().BackendGetAttribute(descriptor_, name, type, room, &count, elements), "read an attribute");
    return count;
  }
  template <class T>
  T get(AttributeName name, AttributeType type) const {
    T value{};
    get(name, type, 1, &value);
    return value;
  }
  // Elements of an enumeration.
  std::vector<int> list(AttributeName name, AttributeType type) const {
    std::vector<int> values(kMaxNotes);
    values.resize(static_cast<std::size_t>(std::min(get(name, type, kMaxNotes, values.data()), kMaxNotes)));
    return values;
  }
  // Descriptors, of which there are at most `room`: the library fills in some that exist.
  std::vector<Described> descriptors(AttributeName name, DescriptorType type, std::int64_t room) const {
    std::vector<Described> found;
    std::vector<Descriptor> raw;
    for (std::int64_t i = 0; i < room; ++i) raw.push_back(found.emplace_back(type).get());
    const std::int64_t count = std::min(get(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, room, raw.data()), room);
    while (static_cast<std::int64_t>(found.size()) > count) found.pop_back();
    return found;
  }
  Descriptor get() const { return descriptor_; }

 private:
  Descriptor descriptor_ = nullptr;
};

// ---- A convolution --------------------------------------------------------------------------------------------------

enum TensorId : std::int64_t { kX = 1, kWeight = 2, kY = 3 };

// Without the first axis, where it is none: more engines know two axes than three.
std::span<const ConvAxis> axes_of(const ConvShape& s) {
  const ConvAxis& first = s.axes[0];
  const bool is_none = first.in == 1 && first.out == 1 && first.kernel == 1 && first.pad == 0;
  return std::span(s.axes).subspan(is_none ? 1 : 0);
}

std::vector<std::int64_t> of_axes(const ConvShape& s, const std::function<std::int64_t(const ConvAxis&)>& number) {
  std::vector<std::int64_t> numbers;
  for (const ConvAxis& axis : axes_of(s)) numbers.push_back(number(axis));
  return numbers;
}

// Never negative, although the last elements of x may be read by no window.
std::int64_t pad_behind(const ConvAxis& axis) {
  return std::max<std::int64_t>(axis.reach() - axis.in, 0);
}

DataType native(DType dtype) {
  return dtype == DType::bf16 ? CUDNN_DATA_BFLOAT16 : dtype == DType::fp16 ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT;
}

// A tensor [rows, extents..., channels] in memory, as cuDNN names its dimensions: rows, channels, extents.
Described tensor(TensorId id, DType dtype, std::int64_t rows, std::int64_t channels,
                 const std::vector<std::int64_t>& extents, std::uint32_t alignment) {
  std::vector<std::int64_t> sizes{rows, channels}, strides(2 + extents.size());
  sizes.insert(sizes.end(), extents.begin(), extents.end());
  strides[1] = 1;
  std::int64_t stride = channels;
  for (std::size_t d = sizes.size() - 1; d >= 2; --d) {
    strides[d] = stride;
    stride *= sizes[d];
  }
  strides[0] = stride;
  Described described(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  described.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, native(dtype));
  described.set(CUDNN_ATTR_TENSOR_DIMENSIONS, sizes);
  described.set(CUDNN_ATTR_TENSOR_STRIDES, strides);
  described.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  described.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t{alignment});
  described.finalize("describe a tensor");
  return described;
}

Described convolution_of(const ConvShape& s) {
  const auto axes = static_cast<std::int64_t>(axes_of(s).size());
  Described described(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  described.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  described.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION);
  described.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, axes);
  described.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, of_axes(s, [](const ConvAxis& axis) { return axis.pad; }));
  described.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, of_axes(s, pad_behind));
  described.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, of_axes(s, [](const ConvAxis& axis) { return axis.stride; }));
  described.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, std::vector<std::int64_t>(axes_of(s).size(), 1));
  described.finalize("describe a convolution");
  return described;
}

// The names of an operation's attributes.
struct OperationNames {
  DescriptorType type;
  AttributeName alpha, beta, convolution, weight, x, y;
};
constexpr std::array<OperationNames, 3> kOperations = {{
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
}};

DType dtype_of(const ConvProblem& p, ConvKind writer) {
  return p.kind == writer ? p.out_dtype : p.dtype;
}

// The descriptors of a problem. They live as long as what is made from them.
struct Graph {
  Described x, weight, y, convolution, operation, graph;

  Graph(const ConvProblem& p, Handle handle)
      : x(tensor(kX, dtype_of(p, ConvKind::bwd_data), p.shape.batch, p.shape.in_channels,
                 of_axes(p.shape, [](const ConvAxis& axis) { return axis.in; }), p.x_alignment)),
        weight(tensor(kWeight, dtype_of(p, ConvKind::bwd_weight), p.shape.out_channels, p.shape.in_channels,
                      of_axes(p.shape, [](const ConvAxis& axis) { return axis.kernel; }), p.weight_alignment)),
        y(tensor(kY, dtype_of(p, ConvKind::fwd), p.shape.batch, p.shape.out_channels,
                 of_axes(p.shape, [](const ConvAxis& axis) { return axis.out; }), p.y_alignment)),
        convolution(convolution_of(p.shape)),
        operation(kOperations[static_cast<std::size_t>(p.kind)].type),
        graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) {
    const OperationNames& names = kOperations[static_cast<std::size_t>(p.kind)];
    operation.set(names.alpha, CUDNN_TYPE_FLOAT, 1.0f);
    operation.set(names.beta, CUDNN_TYPE_FLOAT, 0.0f);
    operation.set(names.convolution, convolution);
    operation.set(names.weight, weight);
    operation.set(names.x, x);
    operation.set(names.y, y);
    operation.finalize("describe an operation");
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
    graph.finalize("describe a graph");
  }
};

// ---- Engines --------------------------------------------------------------------------------------------------------

// On tensor cores fp32 operands are TF32 at best: cuDNN has no note of that alone.
bool may_be_used(const Described& engine, const ConvProblem& p, bool may_compile) {
  const std::vector<int> notes = engine.list(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE);
  const std::vector<int> behaviour = engine.list(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE);
  const auto has = [](const std::vector<int>& list, int note) {
    return std::find(list.begin(), list.end(), note) != list.end();
  };
  const bool is_fp32 = p.dtype == DType::fp32;
  return !has(notes, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) &&
         !has(notes, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) && !has(notes, CUDNN_NUMERICAL_NOTE_FFT) &&
         !has(notes, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) &&
         (is_fp32 || !has(notes, CUDNN_NUMERICAL_NOTE_WINOGRAD)) &&
         (!is_fp32 || p.tf32 || !has(notes, CUDNN_NUMERICAL_NOTE_TENSOR_CORE)) &&
         (may_compile || !has(behaviour, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION));
}

// An engine with its knobs, as the library has configured it.
struct Config {
  Described config;
  std::vector<Described> engine = config.descriptors(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);

  std::vector<Described> parts;  // of which it was made, if it was made here

  explicit Config(Described&& described, std::vector<Described>&& made_of = {})
      : config(std::move(described)), parts(std::move(made_of)) {}

  std::string text() const {
    std::string text =
        concat("engine ", engine.at(0).get<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64));
    const char* before = ": ";
    // The library does not say beforehand how many knobs there are.
    for (const Described& knob :
         config.descriptors(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, kMaxKnobs))
      text += concat(std::exchange(before, " "), knob.get<int>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE),
                     '=', knob.get<std::int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64));
    return text;
  }
};

class Plan final : public CudnnPlan {
 public:
  // `graph` describes the problem. Throws Refused for an engine that the library cannot plan or that wants more
  // workspace than it may have.
  Plan(std::shared_ptr<const Graph> graph, Config&& config, std::string text, int device)
      : graph_(std::move(graph)),
        config_(std::move(config)),
        plan_(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR),
        text_(std::move(text)),
        device_(device),
        handle_(handle_of(device)) {
    plan_.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle_);
    plan_.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config_.config);
    plan_.finalize("plan an engine");
    const auto bytes = plan_.get<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64);
    if (bytes > kMaxWorkspace) throw Refused();
    workspace_bytes_ = static_cast<std::size_t>(bytes);
  }

  const std::string& text() const override { return text_; }
  std::size_t workspace_bytes() const override { return workspace_bytes_; }

  std::string start(const ConvOperands& operands, void* workspace, Stream stream) const override {
    try {
      const Described pack = pack_of(operands, workspace);
      const std::lock_guard lock(of_device(device_).mutex);
      Status status = api().SetStream(handle_, stream);
      if (status == CUDNN_STATUS_SUCCESS) status = api().BackendExecute(handle_, plan_.get(), pack.get());
      return status == CUDNN_STATUS_SUCCESS ? "" : explain(status);
    } catch (const Refused&) {
      return explain(CUDNN_STATUS_NOT_SUPPORTED);
    } catch (const Error& error) {
      return error.what();
    }
  }

 private:
  static Described pack_of(const ConvOperands& operands, void* workspace) {
    constexpr std::array<std::int64_t, 3> kIds{kX, kWeight, kY};
    const std::array<void*, 3> pointers{operands.x, operands.weight, operands.y};
    Described pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, std::span<const std::int64_t>(kIds));
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, std::span<void* const>(pointers));
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
    pack.finalize("name the operands");
    return pack;
  }

  std::shared_ptr<const Graph> graph_;
  Config config_;
  Described plan_;
  std::string text_;
  int device_;
  Handle handle_;
  std::size_t workspace_bytes_ = 0;
};

// What `make` returns; null where the library cannot, for whatever reason: another engine may.
template <class F>
SharedCudnnPlan if_possible(const F& make) {
  try {
    return make();
  } catch (const Refused&) {
    return nullptr;
  } catch (const Error&) {
    return nullptr;
  }
}

// The library's configurations for the graph, the best one first as it thinks.
std::vector<Config> configs_of(const Graph& graph, HeurMode mode) {
  Described heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
  heuristics.finalize("choose engines");
  const std::int64_t room = heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
  std::vector<Config> configs;
  for (Described& config :
       heuristics.descriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, room))
    configs.emplace_back(std::move(config));
  return configs;
}

// "engine 38: 2=1 12=0", or "engine 38", read.
struct EngineText {
  std::int64_t engine = 0;
  std::vector<std::pair<int, std::int64_t>> knobs;
};
std::optional<EngineText> read(const std::string& text) {
  std::istringstream words(text);
  std::string word;
  EngineText read;
  char mark = 0;
  if (!(words >> word >> read.engine) || word != "engine") return std::nullopt;
  if (words >> mark && mark != ':') return std::nullopt;
  for (int knob = 0; words >> knob;) {
    std::int64_t value = 0;
    if (!(words >> mark >> value) || mark != '=') return std::nullopt;
    read.knobs.emplace_back(knob, value);
  }
  if (!words.eof()) return std::nullopt;
  return read;
}

// Throws Refused where the library has no such engine, or does not take these knobs.
Config config_of(const Graph& graph, const EngineText& text) {
  Described engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  engine.set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph.graph);
  engine.set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, text.engine);
  engine.finalize("find an engine");
  std::vector<Described> parts;
  std::vector<Descriptor> knobs;
  for (const auto& [type, value] : text.knobs) {
    Described& knob = parts.emplace_back(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    knob.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, type);
    knob.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, value);
    knob.finalize("choose a knob");
    knobs.push_back(knob.get());
  }
  Described config(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  config.set(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
  if (!knobs.empty())
    config.set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::span<const Descriptor>(knobs));
  config.finalize("configure an engine");
  parts.push_back(std::move(engine));
  return Config(std::move(config), std::move(parts));
}

// Nothing where the library refuses.
std::vector<Config> configs_or_none(const ConvProblem& p, const Graph& graph, HeurMode mode) {
  try {
    return configs_of(graph, mode);
  } catch (const Refused&) {
    return {};
  } catch (const Error& error) {
    notice(concat(name_of_library(), " chooses no engine for ", name_of(p.kind), ": it ", error.what()));
    return {};
  }
}

// Null where the library refuses.
std::shared_ptr<const Graph> graph_or_none(const ConvProblem& p, Handle handle) {
  try {
    return std::make_shared<const Graph>(p, handle);
  } catch (const Refused&) {
    return nullptr;
  } catch (const Error& error) {
    notice(concat(name_of_library(), " takes no ", name_of(p.kind), " of isobar's: it ", error.what()));
    return nullptr;
  }
}

SharedCudnnPlan plan_of(const ConvProblem& p, const std::shared_ptr<const Graph>& graph, Config&& config,
                        bool may_compile) {
  if (!may_be_used(config.engine.at(0), p, may_compile)) return nullptr;
  std::string text = config.text();
  return std::make_shared<const Plan>(graph, std::move(config), std::move(text), p.device);
}

}  // namespace

const char* name_of(ConvKind kind) {
  return kind == ConvKind::fwd ? "conv_fwd" : kind == ConvKind::bwd_data ? "conv_bwd_data" : "conv_bwd_weight";
}

std::string cudnn_name(int device) {
  if (wants_own_kernels() || loaded() == nullptr || handle_of(device) == nullptr) return "";
  return name_of_library();
}

bool cudnn_knows(const ConvProblem& p) {
  const auto fits = [](const ConvAxis& axis) {
    return axis.edge == Edge::zeros &&
           (axis.in + axis.pad + pad_behind(axis) - axis.kernel) / axis.stride + 1 == axis.out;
  };
  return p.shape.batch > 0 && p.shape.x() <= kMaxElements && p.shape.y() <= kMaxElements &&
         std::all_of(std::begin(p.shape.axes), std::end(p.shape.axes), fits);
}

void for_each_cudnn_plan(const ConvProblem& p, bool may_compile,
                         const std::function<bool(const SharedCudnnPlan&)>& use) {
  const auto graph = graph_or_none(p, handle_of(p.device));
  if (graph == nullptr) return;
  for (const HeurMode mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
    for (Config& config : configs_or_none(p, *graph, mode)) {
      const SharedCudnnPlan plan = if_possible([&] { return plan_of(p, graph, std::move(config), may_compile); });
      if (plan != nullptr && !use(plan)) return;
    }
}

SharedCudnnPlan cudnn_plan_of(const ConvProblem& p, const std::string& text) {
  const auto wanted = read(text);
  const auto graph = wanted ? graph_or_none(p, handle_of(p.device)) : nullptr;
  if (graph == nullptr) return nullptr;
  return if_possible([&] { return plan_of(p, graph, config_of(*graph, *wanted), /*may_compile=*/true); });
}

}  // namespace isobar::cuda
