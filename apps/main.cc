// isobar: the command. Parses the command line, calls a subcommand and turns errors into one line on stderr.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "apps/commands.h"
#include "apps/finite_numbers.h"
#include "apps/train/config.h"
#include "apps/train/signals.h"
#include "comm/launch.h"
#include "comm/process_ranks.h"
#include "kernels/common/check.h"
#include "kernels/common/printable.h"
#include "kernels/common/sentence.h"
#include "kernels/common/suggestions.h"

namespace {

// Flags may be written with dashes or underscores: "--run_num=00" becomes "--run-num=00".
std::string with_dashes(std::string argument) {
  if (argument.starts_with("--")) {
    const auto end_of_name =
        argument.begin() + static_cast<std::ptrdiff_t>(std::min(argument.find('='), argument.size()));
    std::replace(argument.begin(), end_of_name, '_', '-');
  }
  return argument;
}

std::string underscored(std::string flag) {
  std::replace(flag.begin(), flag.end(), '-', '_');
  return flag;
}

// CLI11's own message only says that a subcommand is missing.
void refuse_unknown_subcommand(const CLI::App& app, const std::vector<std::string>& arguments) {
  if (arguments.front().starts_with('-')) return;
  std::vector<std::string> names;
  for (const CLI::App* subcommand : app.get_subcommands({})) names.push_back(subcommand->get_name());
  ISOBAR_CHECK(std::find(names.begin(), names.end(), arguments.front()) != names.end(), "there is no subcommand ",
               arguments.front(), isobar::did_you_mean(isobar::suggestion(arguments.front(), names)));
}

// The innermost subcommand that the command line names.
CLI::App& chosen(CLI::App& app) {
  const std::vector<CLI::App*> subcommands = app.get_subcommands();
  return subcommands.empty() ? app : chosen(*subcommands.front());
}

// "isobar data synth".
std::string full_name(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return (parent == nullptr ? "" : full_name(*parent) + " ") + command.get_name();
}

// The message about the first argument, in command-line order, that no option took; "" if all were taken.
std::string about_unknown_argument(CLI::App& app, const std::vector<std::string>& arguments) {
  const std::vector<std::string> left = app.remaining(/*recurse=*/true);
  const auto first = std::find_if(arguments.begin(), arguments.end(), [&](const std::string& argument) {
    return std::find(left.begin(), left.end(), argument) != left.end();
  });
  if (first == arguments.end()) return "";
  if (!first->starts_with("--")) return "there is no use for the argument " + *first;
  const std::string name = first->substr(2, first->find('=') - 2);
  std::vector<std::string> flags;
  for (const CLI::Option* option : chosen(app).get_options())
    for (const std::string& flag : option->get_lnames()) flags.push_back("--" + flag);
  std::string meant = isobar::suggestion("--" + name, flags);
  const bool has_keys = std::find(flags.begin(), flags.end(), "--set") != flags.end();
  const std::string key = has_keys ? isobar::suggested_key(underscored(name)) : "";
  if (!key.empty() && (meant.empty() || key == underscored(name))) meant = "--set " + key + "=VALUE";
  return "there is no flag --" + name + isobar::did_you_mean(meant);
}

// An error before the processes of a launcher are connected may occur on all of them (a wrong flag, say), and is
// reported once: the first process reports it at once, and when it exits, the launcher ends the job. Another process
// waits for that. Returns whether the launcher has asked this process to stop.
bool wait_for_stop() {
  constexpr std::chrono::seconds kLongEnough(10);  // on a busy host
  const auto start = std::chrono::steady_clock::now();
  while (!isobar::stop_requested() && std::chrono::steady_clock::now() - start < kLongEnough)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return isobar::stop_requested();
}

// The rank of this process under a launcher; 0 without one.
int rank_of_process() {
  try {
    return isobar::find_launch().rank;
  } catch (const isobar::Error&) {  // the rank is unknown, so every process reports
    return 0;
  }
}

int report(std::string sentence) {
  if (const int rank = isobar::is_running() ? 0 : rank_of_process(); rank > 0) {
    if (wait_for_stop()) return 1;
    sentence = isobar::concat("rank ", rank, ": ", sentence);
  }
  std::replace(sentence.begin(), sentence.end(), '\n', ' ');
  std::cout.flush();
  isobar::print_line(sentence);
  return 1;
}

// Ignores SIGPIPE and SIGXFSZ, which would end a run: write() reports the failure itself.
void ignore_failed_write_signals() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

// Ends the process when memory runs out, as a kill would; no file is damaged. An exception would unwind through
// libraries whose destructors need memory themselves.
[[noreturn]] void end_without_memory() {
  constexpr std::string_view kSentence = "isobar: out of memory\n";
  static_cast<void>(!write(STDERR_FILENO, kSentence.data(), kSentence.size()));
  _exit(1);
}

// If descriptor 0, 1 or 2 is closed, open() would return it for the next file, and printed text would go into that
// file.
void reserve_standard_streams() {
  int descriptor = 0;
  while (descriptor >= 0 && descriptor <= STDERR_FILENO) descriptor = open("/dev/null", O_RDWR);
  if (descriptor > STDERR_FILENO) close(descriptor);
}

// Whether everything written to stdout has arrived. A reader that closed its pipe or socket is not a failure.
bool output_is_whole() {
  const bool whole = std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.flush().good();
  struct stat target = {};
  return whole || (fstat(STDOUT_FILENO, &target) == 0 && (S_ISFIFO(target.st_mode) || S_ISSOCK(target.st_mode)));
}

int run_command(CLI::App& app, const std::vector<std::string>& arguments) {
  try {
    app.set_version_flag("--version", std::string("isobar ") + isobar::kVersion);
    app.require_subcommand(1);
    // A repeated option takes its last value: scripts append their caller's flags to their own. Subcommands inherit
    // this default when they are added, so it is set first.
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    isobar::register_train(app);
    isobar::register_pretrain_gpt(app);
    isobar::register_sweep(app);
    isobar::register_forecast(app);
    isobar::register_score(app);
    isobar::register_evaluate(app);
    isobar::register_predict(app);
    isobar::register_generate(app);
    isobar::register_info(app);
    isobar::register_mesh(app);
    isobar::register_check(app);
    isobar::register_data(app);
    isobar::register_weights(app);
    if (arguments.empty()) throw CLI::CallForHelp();
    refuse_unknown_subcommand(app, arguments);
    isobar::require_finite_numbers(app);
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // CLI11 expects the reverse order
    return output_is_whole() ? 0 : report("stdout cannot be written");
  } catch (const CLI::RuntimeError& stopped) {
    return stopped.get_exit_code();
  } catch (const CLI::Success& help_or_version) {
    return app.exit(help_or_version);
  } catch (const CLI::ParseError& error) {
    const std::string unknown = about_unknown_argument(app, arguments);
    return report((unknown.empty() ? error.what() : unknown) + " (see " + full_name(chosen(app)) + " --help)");
  }
}

int run(int argc, char** argv) {
  try {
    CLI::App app{
        "isobar trains neural networks on CPUs and NVIDIA GPUs: forecasts of the weather, classification of images, "
        "models of text.",
        "isobar"};
    std::vector<std::string> arguments(argv + 1, argv + argc);
    std::transform(arguments.begin(), arguments.end(), arguments.begin(), with_dashes);
    return run_command(app, arguments);
  } catch (const isobar::ErrorReportedByAnotherRank&) {
    if (!isobar::is_running()) wait_for_stop();
    isobar::end_process(1, /*has_reported=*/false);
    return 1;
  } catch (...) {
    report(isobar::sentence_of_current_exception());
    isobar::end_process(1, /*has_reported=*/true);
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  reserve_standard_streams();
  ignore_failed_write_signals();
  std::set_new_handler(end_without_memory);
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (command == "train" || command == "sweep" || command == "pretrain-gpt")
    isobar::install_stop_handlers();  // as early as possible
  return run(argc, argv);
}
