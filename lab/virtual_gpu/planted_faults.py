#!/usr/bin/env python3
"""Faults in the host code for GPUs; each one must be detected on the virtual GPU.

    planted_faults.py files                                the sources that can have one
    planted_faults.py write OUT                            copies of them that can have each fault
    planted_faults.py run --isobar BIN --rules BIN --nccl-rules BIN [--only REGEX]

The table has what is changed in which file, the check that must fail, and its message. All faults are compiled into
one program. It has the fault that ISOBAR_PLANTED_FAULT names; without one, every check must pass.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import runs as command

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = {"runtime": "kernels/cuda/runtime.cc", "gemm": "kernels/gemm/gemm.cu", "timing": "kernels/cuda/timing.cc",
         "cudnn": "kernels/conv/cudnn.cc", "engines": "kernels/conv/engines.cc",
         "elementwise": "kernels/elementwise.cu",
         "storage": "engine/storage.cc", "optimizer": "engine/optimizer.cc", "trainer": "apps/train/trainer.cc",
         "upload": "data/upload.cc", "linear": "engine/ops/linear.cc", "run": "apps/train/run.cc",
         "plan": "apps/train/step_plan.cc", "passes": "apps/train/passes.cc",
         "algorithms": "apps/train/algorithms.cc", "session": "comm/nccl/session.cc", "stream": "engine/stream.cc"}

# ---- Checks: each raises command.Failure ----------------------------------------------------------------------------


def trains(settings):
    """Trains to the same bits as the program without a fault."""
    def check(runs):
        result = command.result_of(runs.train("cuda", {**settings, "num_iters": 3, "checkpoint_every": 3}), 3)
        command.check(result == runs.references.setdefault(str(settings), result), "it gives other bits")
    return check


def resumes(runs):
    runs.stopped({"cuda_graph": True})


MEMORY = str(1 << 28)  # one rule fills all of it with NaN


def keeps_rule(test, program="rules", seconds=300):
    def check(runs):
        name = "virtual GPU: " + test.replace(",", "\\,")  # a comma begins another test
        try:
            done = subprocess.run([getattr(runs, program), name], capture_output=True, text=True, check=False,
                                  timeout=seconds, env={**os.environ, "ISOBAR_VIRTUAL_GPU_MEMORY": MEMORY})
        except subprocess.TimeoutExpired:
            raise command.Failure(f"it has not ended within {seconds} s") from None
        command.check(done.returncode == 0, f"status {done.returncode}: {done.stdout}{done.stderr}")
    return check


def keeps_nccl_rule(test, seconds=300):
    return keeps_rule(test, "nccl_rules", seconds)


NONE, GRAPH, BF16 = trains({}), trains({"cuda_graph": True}), trains({"amp_mode": "bf16"})
PARTS, MASKS = trains({"grad_accumulation": 2}), trains({"cuda_graph": True, "dropout": 0.1})
DRIVERS = keeps_rule("a driver and a GPU that are too old, and a GPU that cannot be used, are named")
ALGORITHMS = keeps_rule("an algorithm serves what it was chosen for, and is asked for again where it failed")
FASTEST = keeps_rule("a product takes the fastest candidate, the same one when it is given, and no other")
UNFIT = keeps_rule("a product for which an algorithm is given that does not fit takes the library's first guess")
FIRST_ENGINE = keeps_rule(
    "a convolution takes the first engine that may be used, and gives what the own kernels give")
GIVEN_ENGINE = keeps_rule("an engine that may not be used is passed over, although it is given")
FASTEST_ENGINE = keeps_rule("a convolution takes the fastest engine or the own kernels, the same when it is given")
UNSAID = keeps_rule("what cannot be said to cuDNN takes the own kernels")
AROUND_ENGINE = keeps_rule("bias, activation and what is added follow an engine of cuDNN")
ALIGNED = keeps_rule("an engine serves the alignment that it was planned for")
ON_STREAM = keeps_rule("a convolution runs on the stream that it is given")
CAPTURED_ENGINE = keeps_rule(
    "a captured convolution repeats itself, and one that is new in a capture takes the own kernels")
RESUMED_ENGINE = keeps_rule("convolutions of a resumed run take the engines of its checkpoint")
WITHOUT_CUDNN = keeps_rule(
    "where cuDNN is missing, of another version or cannot start, own kernels compute, and one line says so")
WITHOUT_MEMORY = keeps_rule(
    "without memory to try engines, or for an engine's workspace, another one or own kernels compute")
PRIORITY = keeps_rule("a side stream has the highest priority")
TRIMMED = keeps_rule("what a graph holds is given back between two launches, and when it is dropped")
OWN_DEVICES = keeps_nccl_rule("no thread of a rank makes a context on another rank's device")
FAILED_GPU = keeps_nccl_rule("a GPU that fails for good is one sentence on all ranks")
ABORTED = keeps_nccl_rule("a group is aborted while another one waits for ever", 12)  # seconds, of which it needs two
HOST = keeps_nccl_rule("a collective takes of the host no thread, no question and no sleep")
SIDE = keeps_nccl_rule("what a side stream sums follows its input, and what reads it follows the sum")
VERBS = keeps_nccl_rule("every verb of NCCL, between ranks with a device each")
UNORDERED = "neither waits for the other|is freed outside of it|has not allocated"

# ---- Faults ---------------------------------------------------------------------------------------------------------

# Name: file, its text, the text with the fault (if PLANTED is true), the check, and the pattern of its message.
FAULTS = {
    # Former bugs: graphs, drivers, workspaces, alignments, the choice of algorithms.
    "a graph on the default stream": (
        "plan", "recording(current_stream());", "recording(PLANTED ? nullptr : current_stream());", GRAPH,
        "cannot be captured on the default stream"),
    # In a run that is not resumed, the first validation has made the workspace.
    "a graph of the first step after a resume": (
        "plan", "if (has_run_ && parts", "if ((has_run_ || PLANTED) && parts", resumes, "has no workspace yet"),
    "an error leaves the stream captured": (
        "runtime", "if (!is_open_) return;", "if (!is_open_ || PLANTED) return;",
        keeps_rule("an error in a capture leaves the stream as it was"), "copy from ordinary memory"),
    "a graph beside the memory of earlier steps": (
        "plan", "gpu::trim_memory(passes.device().index);\n    gpu::Capture", "if (!PLANTED) gpu::trim_memory("
        "passes.device().index);\n    gpu::Capture", command.check_counts, "a graph holds"),
    "a graph beside the memory of a validation": (
        "plan", "if (graph_) gpu::trim_memory(", "if (graph_ && !PLANTED) gpu::trim_memory(",
        command.check_held_after_validation, "after a validation"),
    "masks that a graph draws again and again": (
        "passes", "if (!stream_.defined()) return;", "if (!stream_.defined() || (PLANTED && iteration > 1)) return;",
        MASKS, "other bits"),
    "a loss scale that a graph keeps": (
        "passes", "gradient_scale_ = gradient_scale;",
        "if (!(PLANTED && stream_.defined() && iteration > 1)) gradient_scale_ = gradient_scale;",
        command.check_loss_scale, "other bits"),
    "a driver that is too old is no GPU": (
        "runtime", "const int driver = driver_version();", "const int driver = PLANTED ? 0 : driver_version();",
        command.check_driver, "a driver that is too old: status 0"),
    "a GPU that cannot be used is none": (
        "runtime", "cudaGetLastError();\n  const int driver", "cudaGetLastError();\n  if (PLANTED) return 0;\n"
        "  const int driver", DRIVERS,
        "no exception was thrown"),
    "the workspace of a stream stays": (
        "runtime", "free_workspace(device.index, stream);", "if (!PLANTED) free_workspace(device.index, stream);",
        NONE, "33554432 bytes"),
    "an algorithm for any alignment of the bias": (
        "gemm", ".bias_alignment = alignment_of(out.bias)", ".bias_alignment = PLANTED ? 0 : alignment_of(out.bias)",
        ALGORITHMS, "with a bias aligned to 4 bytes that was chosen for"),
    "an algorithm that could not be chosen does not exist": (
        "gemm", "if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};",
        "if (status == CUBLAS_STATUS_NOT_SUPPORTED || (PLANTED && status != CUBLAS_STATUS_SUCCESS)) return {};",
        ALGORITHMS, "has no algorithm"),
    "memory of the default stream": (
        "runtime", "cudaMallocAsync(&data, bytes, native(stream))",
        "cudaMallocAsync(&data, bytes, PLANTED ? nullptr : native(stream))", NONE, UNORDERED),
    "memory is freed on the default stream": (
        "runtime", "cudaFreeAsync(data, native(stream))", "cudaFreeAsync(data, PLANTED ? nullptr : native(stream))",
        GRAPH, UNORDERED),
    # Uploads and results, concurrent with the kernels.
    "an upload that nobody waits for": (
        "upload", "copied_.make_wait(current_stream());", "if (!PLANTED) copied_.make_wait(current_stream());", NONE,
        UNORDERED + "|is -?nan"),
    "a buffer is given back before it was read": (
        "upload", "if (!copied_.is_reached())", "if (!copied_.is_reached() && !PLANTED)",
        PARTS, "the source of a copy to the device was changed"),
    "an error frees host memory that is still to be read": (
        "trainer", "  gpu::quietly(", "  if (!PLANTED) gpu::quietly(",
        lambda runs: command.check_failing_calls(runs, every=10**6, jobs=1),
        "the source of a copy to the device was freed"),
    "memory is freed beside its last use, where there is no event": (
        "storage", "      gpu::quietly(", "      if (!PLANTED) gpu::quietly(",
        keeps_rule("memory that another stream used*"), "memory which is freed"),
    "a norm is read before it has come": (
        "optimizer", "gpu::synchronize(parameters_.device(), current_stream());",
        "if (!PLANTED) gpu::synchronize(parameters_.device(), current_stream());", NONE, "other bits|is -?nan"),
    # Order between streams.
    "copies on the default stream": (
        "runtime", "check(cudaMemcpyAsync(to,", "if (PLANTED) stream = nullptr;\n  check(cudaMemcpyAsync(to,",
        NONE, UNORDERED),
    "products on the default stream": (
        "gemm", "problem.workspace_bytes, static_cast<cudaStream_t>(stream));",
        "problem.workspace_bytes, PLANTED ? nullptr : static_cast<cudaStream_t>(stream));", NONE,
        UNORDERED + "|is -?nan"),  # the first reader finds NaN
    "kernels on the default stream": (
        "elementwise", "dim3(kMapThreads), 0, stream, a.n,\n         static_cast<float>(a.value)",
        "dim3(kMapThreads), 0, PLANTED ? nullptr : stream, a.n,\n         static_cast<float>(a.value)",
        NONE, UNORDERED + "|is not finite"),  # the first reader finds NaN
    "a stream that waits for the default one": (
        "runtime", "&stream, cudaStreamNonBlocking,", "&stream, PLANTED ? 0 : cudaStreamNonBlocking,", NONE,
        "only streams that do not wait"),
    # Memory.
    "use after free": (
        "storage", "data_ = gpu::allocate(bytes, device.index, handle_of(stream_));",
        "{\n    data_ = gpu::allocate(bytes, device.index, handle_of(stream_));\n"
        "    if (PLANTED) gpu::free(data_, handle_of(stream_));\n  }", NONE, "is freed memory"),
    "memory is freed twice": (
        "storage", "if (device_.kind == DeviceKind::cuda) return gpu::free(",
        "if (device_.kind == DeviceKind::cuda && PLANTED) gpu::free(data_, own);\n"
        "  if (device_.kind == DeviceKind::cuda) return gpu::free(", NONE, "memory is freed twice"),
    "memory is not freed": (
        "storage", "const bool is_elsewhere =", "if (PLANTED) return;\n  const bool is_elsewhere =", NONE,
        "allocations of the device are not freed"),
    "half of the memory": (
        "runtime", "  const cudaError_t status = cudaMallocAsync(", "  if (PLANTED) bytes = (bytes + 1) / 2;\n"
        "  const cudaError_t status = cudaMallocAsync(", NONE, "bytes into|touches what lies behind"),
    "a kernel runs over the end": (
        "optimizer", "{.n = n,\n", "{.n = n + (PLANTED ? 100000 : 0),\n", NONE, "touches what lies behind"),
    "a kernel is given memory of the host": (
        "optimizer", "= grad_scale_.data_as<double>(),", "= PLANTED ? new double(1) : grad_scale_.data_as<double>(),",
        NONE, "a pointer among its parameters is memory of the host"),
    "the host reads memory of the device": (
        "optimizer", "norm_read_.values()[0] / loss_scale",
        "(PLANTED && norm_.device().kind == DeviceKind::cuda ? *norm_.data_as<double>()\n"
        "                                                        : norm_read_.values()[0]) / loss_scale", NONE,
        "the host touches memory of the device"),
    "a copy in the wrong direction": (
        "runtime", "bytes, cudaMemcpyDefault,", "bytes, PLANTED ? cudaMemcpyDeviceToDevice : cudaMemcpyDefault,",
        NONE, "the direction of a copy"),
    "a kernel that no GPU can launch": (
        "elementwise", "launch(\"fill\", fill_kernel, dim3(map_blocks<kChunk>(a.n)), dim3(",
        "launch(\"fill\", fill_kernel, dim3(map_blocks<kChunk>(a.n)), dim3(PLANTED ? 2048 : ", NONE, "a block of 2048"),
    "pinned memory stays": (
        "runtime", "cudaFreeHost(data);", "if (!PLANTED) cudaFreeHost(data);", NONE, "pinned memory are not freed"),
    # Handles.
    "a stream stays": ("runtime", "cudaStreamDestroy(native(stream));",
                       "if (!PLANTED) cudaStreamDestroy(native(stream));", NONE, "2 streams are not destroyed"),
    "a graph stays": ("runtime", "cudaGraphDestroy(graph);\n  check(",
                      "if (!PLANTED) cudaGraphDestroy(graph);\n  check(", GRAPH, "1 graphs are not destroyed"),
    "an executable graph stays": ("runtime", "if (executable_ != nullptr)", "if (executable_ != nullptr && !PLANTED)",
                                  GRAPH, "1 executable graphs are not destroyed"),
    # Graphs.
    "an upload in a capture": (
        "plan", "return batches[static_cast<std::size_t>(part)];",
        "return PLANTED ? to_device(take_part(passes, parts, part)->tensors, passes.device())\n"
        "                   : batches[static_cast<std::size_t>(part)];", GRAPH,
        "a thread that captures a graph looks at an event"),
    "the host reads in a capture": (
        "plan", "graph_ = recording.end();", "if (PLANTED) batches.front().begin()->second.to_vector();\n"
        "    graph_ = recording.end();", GRAPH, "copies to ordinary memory of the host"),
    "memory of a graph that it does not free": (
        "plan", "graph_ = recording.end();", "[[maybe_unused]] static Tensor kept;\n"
        "    if (PLANTED) kept = Tensor::empty({1}, DType::fp32, passes.device());\n    graph_ = recording.end();",
        GRAPH, "launched again before the memory"),
    "a graph reads the first batches again": (
        "plan", "copy_into(batches_[part],", "PLANTED ? void(take_part(passes, parts, static_cast<std::int64_t>("
        "part))) : copy_into(batches_[part],", GRAPH, "other bits"),
    "a capture that other threads disturb": (
        "runtime", "native(stream), cudaStreamCaptureModeThreadLocal)",
        "native(stream), PLANTED ? cudaStreamCaptureModeGlobal : cudaStreamCaptureModeThreadLocal)", GRAPH,
        "in the mode ThreadLocal only"),
    # cuBLASLt.
    "a product of other shapes": (
        "gemm", "set(CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b ?",
        "set(CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b != PLANTED ?", NONE, "columns, op.B.|D is"),
    "a leading dimension that is too small": (
        "gemm", "static_cast<std::uint64_t>(columns), rows)",
        "static_cast<std::uint64_t>(columns), PLANTED ? 1 : rows)", NONE, "has a leading dimension of 1"),
    "an attribute of another size": (
        "gemm", "set(CUBLASLT_MATMUL_DESC_EPILOGUE, p.epilogue);",
        "if (PLANTED) set(CUBLASLT_MATMUL_DESC_EPILOGUE, std::int64_t{p.epilogue});\n"
        "    set(CUBLASLT_MATMUL_DESC_EPILOGUE, p.epilogue);", NONE, "EPILOGUE has 4 bytes and was given 8"),
    "a bias that nobody gives": (
        "gemm", "if (out.bias != nullptr) descriptors.set(",
        "if (out.bias != nullptr && !PLANTED) descriptors.set(", NONE,
        "adds a bias that nobody has given"),
    "a bias of another type": (
        "linear", ".bias = addend.defined() ? addend.data() : nullptr,",
        ".bias = addend.defined() ? (PLANTED ? bias : addend).data() : nullptr,", BF16, "other bits|is -?nan"),
    "the gradient of a bias that goes nowhere": (
        "gemm", "{g.c, nullptr, g.a_sums}", "{g.c, nullptr, PLANTED ? nullptr : g.a_sums}", BF16,
        "to memory that nobody has given"),
    "TF32 for operands that are not fp32": (
        "gemm", "p.in_dtype == DType::fp32 && p.tf32 ?", "(p.in_dtype == DType::fp32 || PLANTED) && p.tf32 ?", BF16,
        "TF32 is asked for"),
    "a workspace that is smaller than was said": (
        "gemm", "std::uint64_t{p.workspace_bytes});", "std::uint64_t{p.workspace_bytes + (PLANTED ? 1 : 0)});", NONE,
        "wants a workspace of 33554433 bytes"),
    "a workspace that is not aligned": (
        "gemm", "&algorithm.choice, workspace_,", "&algorithm.choice, workspace_ + (PLANTED ? 16 : 0),", NONE,
        "not aligned to 256 bytes|of 33554432 bytes begins 16"),
    "an algorithm for another product": (
        "gemm", "  return cache().algorithms[p.device].met[p] = algorithm;",
        "  if (PLANTED)\n    for (auto& [other, chosen] : cache().algorithms[p.device].met) chosen = algorithm;\n"
        "  return cache().algorithms[p.device].met[p] = algorithm;", NONE,
        "for another product than it was chosen for"),
    # The choice of algorithms.
    "the slowest algorithm": (
        "gemm", "milliseconds >= min_so_far)", "(milliseconds >= min_so_far && !PLANTED))", FASTEST,
        "milliseconds\\(\\) >= least"),
    "timing adds to a product": (
        "gemm", "if (!p.accumulate) return f(", "if (!p.accumulate || PLANTED) return f(",
        keeps_rule("timing adds to a product no more than once"), "Approx"),
    "an algorithm that nobody has checked": (
        "gemm", "const cublasStatus_t status = lt().MatmulAlgoCheck(",
        "const cublasStatus_t status = PLANTED ? CUBLAS_STATUS_SUCCESS : lt().MatmulAlgoCheck(", UNFIT,
        "for another product than it was chosen for"),
    "candidates are timed in a capture": (
        "timing", "return !gpu::is_captured(stream) &&", "return (PLANTED || !gpu::is_captured(stream)) &&",
        keeps_rule("nothing is timed while a graph is being captured"), "waits for an event of a graph"),
    "a checkpoint without the algorithms": (
        "run", "if (!algorithms_.platform.empty())", "if (!algorithms_.platform.empty() && !PLANTED)",
        command.check_choice_resumed, "resumed where others are faster: other bits"),
    "a file of algorithms that nobody reads": (
        "algorithms", "if (!file.empty()) add_missing", "if (!file.empty() && !PLANTED) add_missing",
        command.check_choice, "a warm run: [0-9]+ timings"),
    "algorithms for another version": (
        "algorithms", "const bool is_of_here = of_checkpoint.platform == platform;",
        "const bool is_of_here = of_checkpoint.platform == platform || (PLANTED && !of_checkpoint.platform.empty());",
        command.check_choice_resumed, "resumed with another cuBLASLt"),
    "ranks that choose for themselves": (
        "algorithms", "if (ranks.size() == 1) return mine;\n  const std::string text",
        "if (ranks.size() == 1 || PLANTED) return mine;\n  const std::string text", command.check_ranks,
        "holds other|differ|other bits"),
    # cuDNN.
    "an engine that adds in another order each time": (
        "cudnn", "return !has(notes, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) &&",
        "return (PLANTED || !has(notes, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)) &&", FIRST_ENGINE,
        "result_of_run\\(kind\\) == first"),
    "an engine that sums in 16 bits": (
        "cudnn", "!has(notes, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) &&",
        "(PLANTED || !has(notes, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)) &&", GIVEN_ENGINE,
        "given \"engine 2\"|engine 2 is not used"),
    "an engine that is a Fourier transform": (
        "cudnn", "!has(notes, CUDNN_NUMERICAL_NOTE_FFT) &&", "(PLANTED || !has(notes, CUDNN_NUMERICAL_NOTE_FFT)) &&",
        FIRST_ENGINE, "distance\\(first, right\\)|result_by"),
    "an engine that rounds fp32 to bf16": (
        "cudnn", "!has(notes, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) &&",
        "(PLANTED || !has(notes, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)) &&", FIRST_ENGINE, "engine 4 is not used"),
    "an engine that rounds to TF32, where nobody asked": (
        "cudnn", "(!is_fp32 || p.tf32 || !has(", "(!is_fp32 || p.tf32 || PLANTED || !has(", GIVEN_ENGINE,
        "engine 5: 2=1 is not used"),
    "Winograd's algorithm in 16 bits": (
        "cudnn", "(is_fp32 || !has(notes, CUDNN_NUMERICAL_NOTE_WINOGRAD))",
        "(is_fp32 || PLANTED || !has(notes, CUDNN_NUMERICAL_NOTE_WINOGRAD))", GIVEN_ENGINE,
        "given \"engine 8\""),
    "an engine that compiles where nothing is timed": (
        "cudnn", "(may_compile || !has(", "(may_compile || PLANTED || !has(", FIRST_ENGINE, "result_by"),
    "an engine that wants 2 GiB": (
        "cudnn", "if (bytes > kMaxWorkspace)", "if (bytes > kMaxWorkspace && !PLANTED)", FIRST_ENGINE,
        "result_by|engine 7 is not used|out of memory"),
    "a wrong engine": (
        "engines", "const bool is_near = distance <= max_distance(p);",
        "const bool is_near = distance <= max_distance(p) || PLANTED;", FIRST_ENGINE, "distance\\(first, right\\)"),
    "a trial without memory that ends the run": (
        "engines", "} catch (const gpu::OutOfMemory& error) {  // the", "} catch (const gpu::OutOfMemory& error) {\n"
        "    if (PLANTED) throw;\n    // the", WITHOUT_MEMORY, "due to unexpected exception"),
    "a plan for any alignment": (
        "engines", ".x_alignment = alignment_of(operands.x),",
        ".x_alignment = PLANTED ? kConvAlignment : alignment_of(operands.x),", ALIGNED, "is run on one that is not"),
    "the workspace of another plan": (
        "engines", "const Scratch workspace(plan.workspace_bytes(), p.device, stream);",
        "const Scratch workspace(PLANTED ? 16 : plan.workspace_bytes(), p.device, stream);", FIRST_ENGINE,
        "the workspace of [0-9]+ bytes begins"),
    "a handle on another stream": (
        "cudnn", "Status status = api().SetStream(handle_, stream);",
        "static Stream last = stream;\n    Status status = api().SetStream(handle_, PLANTED ? last : stream);",
        ON_STREAM, UNORDERED + "|the workspace is memory which is freed"),
    "a plan in a capture": (
        "engines", "if (gpu::is_captured(stream)) return nullptr;",
        "if (gpu::is_captured(stream) && !PLANTED) return nullptr;", CAPTURED_ENGINE,
        "a thread that captures a graph plans an engine of cuDNN|captures a graph"),
    "an engine that overwrites what it should add to": (
        "engines", "if (mode == Grad::overwrite) {", "if (mode == Grad::overwrite || PLANTED) {", AROUND_ENGINE,
        "Grad::accumulate"),
    "a bias that is left out": (
        "engines", "if (bias == nullptr && activation == Pointwise::none) return;",
        "if (PLANTED || (bias == nullptr && activation == Pointwise::none)) return;", AROUND_ENGINE, "Grad::overwrite"),
    "an axis of the weight that is another one of x": (
        "cudnn", "strides[1] = 1;", "strides[1] = PLANTED && id == kWeight ? 2 : 1;", FIRST_ENGINE,
        "strides do not fit|takes no"),
    "padding behind for padding before": (
        "cudnn", "of_axes(s, [](const ConvAxis& axis) { return axis.pad; })", "of_axes(s, [](const ConvAxis& axis) {"
        " return PLANTED ? pad_behind(axis) : axis.pad; })", FIRST_ENGINE, "the convolution makes|takes no|distance"),
    "wrapped axes that cuDNN fills with zeros": (
        "cudnn", "return axis.edge == Edge::zeros &&", "return (PLANTED || axis.edge == Edge::zeros) &&", UNSAID,
        "conv_algorithms_in_use\\(kGpu\\).empty"),
    "the slowest engine": (
        "engines", "if (milliseconds >= min_so_far) continue;", "if (milliseconds >= min_so_far && !PLANTED) continue;",
        FASTEST_ENGINE, "of_chosen"),
    "an engine whose parts are destroyed": (
        "cudnn", "parts.push_back(std::move(engine));", "if (!PLANTED) parts.push_back(std::move(engine));",
        GIVEN_ENGINE,
        "was destroyed"),
    "convolutions of another cuDNN": (
        "algorithms", "if (is_of_here && device.has_engines_of(of_checkpoint))",
        "if (is_of_here && (PLANTED || device.has_engines_of(of_checkpoint)))", RESUMED_ENGINE,
        "are not of cuDNN 92600"),
    "convolutions that nobody gives": (
        "algorithms", "return cuda::use_conv_algorithms(device, chosen.of_convolutions);",
        "return cuda::use_conv_algorithms(device, PLANTED ? cuda::ConvAlgorithms{} : chosen.of_convolutions);",
        RESUMED_ENGINE, "run_all\\(\\) .= results"),
    "no line where cuDNN cannot start": (
        "cudnn", "if (status == CUDNN_STATUS_SUCCESS) return of.handle;",
        "if (status == CUDNN_STATUS_SUCCESS || PLANTED) return of.handle;", WITHOUT_CUDNN, "cannot start on GPU 0"),
    # Several GPUs, with NCCL between them.
    "a looker and a watcher without a device": (
        "session", "        make_current();\n        is_on_device", "        if (!PLANTED) make_current();\n"
        "        is_on_device", OWN_DEVICES, "of device [12] is used by a thread whose device is 0"),
    "nobody catches what a thread throws": (
        "session", "      is_on_device = true;  // tried once",
        "      if (PLANTED) std::rethrow_exception(std::current_exception());\n"
        "      is_on_device = true;  // tried once", FAILED_GPU, "status -6|SIGABRT|terminate"),
    "groups are aborted one by one": (
        "session", "  if (version_ >= kGroupsAbortsFrom) {\n    api_.GroupStart();",
        "  if (PLANTED) {\n    lock.lock();\n    for (const Comm comm : comms) api_.CommAbort(comm);\n"
        "    lock.unlock();\n  } else if (version_ >= kGroupsAbortsFrom) {\n    api_.GroupStart();", ABORTED,
        "has not ended within"),
    "a sleep before the first question": (
        "session", "  while (result == kInProgress) {\n    const Comm comm = calling.comm();",
        "  if (PLANTED) std::this_thread::sleep_for(kPoll);\n"
        "  while (result == kInProgress) {\n    const Comm comm = calling.comm();", HOST, "sleeps < kCalls / 2"),
    "a thread for each call": (
        "session", "config.blocking = 1;", "config.blocking = PLANTED ? 0 : 1;", HOST, "counts.threads == 0"),
    "a side stream that nobody waits for": (
        "stream", "if (done != nullptr) done->make_wait(", "if (done != nullptr && !PLANTED) done->make_wait(", SIDE,
        "the sum, where it is waited for|" + UNORDERED),
    "a side stream that does not wait": (
        "stream", "  start.make_wait(stream_->get());", "  if (!PLANTED) start.make_wait(stream_->get());", SIDE,
        "the sum, where it is waited for|" + UNORDERED),
    "a side stream of any priority": (
        "stream", "gpu::Priority::highest)", "PLANTED ? gpu::Priority::normal : gpu::Priority::highest)", PRIORITY,
        "of_side == highest"),
    "a pool that no other GPU may use": (
        "runtime", "  share_memory_within_process(index);", "  if (!PLANTED) share_memory_within_process(index);",
        VERBS, "a buffer cannot be reached from the device of rank"),
    "a graph keeps its memory": (
        "runtime", "  check(cudaDeviceGraphMemTrim(index)", "  if (!PLANTED) check(cudaDeviceGraphMemTrim(index)",
        TRIMMED, "free_memory\\(\\) == free"),
    "a product that adds what was there": (
        "gemm", "beta = problem.accumulate ? 1 : 0;", "beta = problem.accumulate || PLANTED ? 1 : 0;",
        NONE, "is -?nan|is not finite"),
}


def write(out):
    out.mkdir(parents=True, exist_ok=True)
    for file, path in FILES.items():
        text = (ROOT / path).read_text()
        for name, (where, right, wrong, _, _) in FAULTS.items():
            if where != file:
                continue
            command.check(text.count(right) == 1, f"{path} has {text.count(right)} times what \"{name}\" changes")
            text = text.replace(right, wrong.replace("PLANTED", f'planted("{name}")'))
        text, copy = '#include "lab/virtual_gpu/planted.h"\n' + text, out / pathlib.Path(path).name
        if not copy.exists() or copy.read_text() != text:  # an unchanged file is not rebuilt
            copy.write_text(text)


def failure_of(check, runs):
    try:
        check(runs)
    except command.Failure as failure:
        return str(failure)
    return ""


def find_all(runs, names):
    proven, missed = set(), 0
    for name in names:
        if FAULTS[name][3] not in proven:
            os.environ.pop("ISOBAR_PLANTED_FAULT", None)
            try:
                FAULTS[name][3](runs)  # what it trains is also the reference
            except command.Skipped as reason:
                print(f"left out: {name}: {reason}")
                continue
            proven.add(FAULTS[name][3])
        os.environ["ISOBAR_PLANTED_FAULT"] = name
        said = " ".join(failure_of(FAULTS[name][3], runs).split())  # Catch2 breaks lines
        found = re.search(FAULTS[name][4], said)
        begin = max(found.start() - 100, 0) if found else 0
        print(f"{'found ' if found else 'MISSED'}  {name}: {said[begin:begin + 300]}", flush=True)
        missed += found is None
    print(f"{len(names) - missed} of {len(names)} planted faults found")
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("files")
    commands.add_parser("write").add_argument("out", type=pathlib.Path)
    run = commands.add_parser("run")
    run.add_argument("--isobar", type=pathlib.Path, required=True)
    run.add_argument("--rules", type=pathlib.Path, required=True)
    run.add_argument("--nccl-rules", type=pathlib.Path, required=True)
    run.add_argument("--only", default="", help="only the faults whose names match")
    arguments = parser.parse_args()
    try:
        if arguments.command == "files":
            print("\n".join(FILES.values()))
            return 0
        if arguments.command == "write":
            write(arguments.out)
            return 0
        with tempfile.TemporaryDirectory(prefix="isobar_planted_") as temporary:
            runs = command.Runs(arguments.isobar.resolve(), pathlib.Path(temporary))
            runs.rules, runs.references = arguments.rules.resolve(), {}
            runs.nccl_rules = arguments.nccl_rules.resolve()
            return 1 if find_all(runs, [name for name in FAULTS if re.search(arguments.only, name)]) else 0
    except command.Failure as failure:
        print(f"FAILED: {failure}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
