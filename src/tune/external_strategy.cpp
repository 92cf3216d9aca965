#include "tune/external_strategy.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <set>
#include <utility>

#include "base/clock.hpp"
#include "base/json.hpp"
#include "pool/process.hpp"
#include "space/valid_set.hpp"

extern char** environ;

namespace jitune::tune {
namespace {

constexpr size_t kMaxLine = 16 << 20;

/// Holds SIGPIPE back on this thread and takes one that came meanwhile: a program that is gone is an error of write().
class NoSigpipe {
 public:
  NoSigpipe() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &set_, &old_);
  }
  ~NoSigpipe() {
    const timespec now{};
    if (sigismember(&old_, SIGPIPE) == 0) ::sigtimedwait(&set_, nullptr, &now);
    ::pthread_sigmask(SIG_SETMASK, &old_, nullptr);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t set_, old_;
};

/// The program and its pipes, spoken to in lines.
class Program {
 public:
  explicit Program(pool::Spawned spawned) : spawned_(std::move(spawned)) {
    for (const int fd : {spawned_.to_stdin.get(), spawned_.from_stdout.get(), spawned_.from_stderr.get()})
      ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  }
  ~Program() { (void)end(); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// "" or why the line could not be written.
  std::string write_line(std::string line, Clock::time_point until) {
    const NoSigpipe guard;
    line += '\n';
    for (size_t written = 0; written < line.size();) {
      const ssize_t count = ::write(spawned_.to_stdin.get(), line.data() + written, line.size() - written);
      if (count > 0) {
        written += static_cast<size_t>(count);
      } else if (errno == EAGAIN) {
        if (!wait(spawned_.to_stdin.get(), POLLOUT, until)) return "it does not read what it is told";
      } else if (errno != EINTR) {
        return "it ended";
      }
    }
    return "";
  }

  /// A line, or why there is none.
  Result<std::string> read_line(Clock::time_point until) {
    for (;;) {
      if (const size_t end = input_.find('\n'); end != std::string::npos) {
        std::string line = input_.substr(0, end);
        input_.erase(0, end + 1);
        return line;
      }
      if (input_.size() > kMaxLine) return Failure{"its answer has no end"};
      char block[4096];
      const ssize_t count = ::read(spawned_.from_stdout.get(), block, sizeof block);
      if (count > 0) {
        input_.append(block, static_cast<size_t>(count));
      } else if (count == 0) {
        return Failure{"it ended"};
      } else if (errno == EAGAIN) {
        if (!wait(spawned_.from_stdout.get(), POLLIN, until)) return Failure{"it gave no answer in time"};
      } else if (errno != EINTR) {
        return Failure{"its output can't be read"};
      }
    }
  }

  /// Ends it, at the latest by SIGKILL, and says how it ended, with the last it wrote on stderr.
  std::string end() {
    if (spawned_.pid <= 0) return "";
    spawned_.to_stdin.reset();
    int status = 0;
    bool reaped = false;
    for (int i = 0; i < 20 && !reaped; ++i) {
      reaped = ::waitpid(spawned_.pid, &status, WNOHANG) == spawned_.pid;
      if (!reaped) ::poll(nullptr, 0, 10);
    }
    if (!reaped) {
      ::kill(-spawned_.pid, SIGKILL);  // its process group: the shell and what it started
      ::waitpid(spawned_.pid, &status, 0);
    }
    spawned_.pid = -1;
    drain_errors();
    std::string text = reaped ? pool::describe_status(status) : "stopped by us";
    if (!errors_.empty()) text += "; it wrote: " + errors_;
    return text;
  }

  void drain_errors() {
    char block[4096];
    for (ssize_t count = 0; (count = ::read(spawned_.from_stderr.get(), block, sizeof block)) > 0;) {
      errors_.append(block, static_cast<size_t>(count));
      constexpr size_t kKept = 400;
      if (errors_.size() > kKept) errors_.erase(0, errors_.size() - kKept);
    }
  }

 private:
  /// Also empties stderr, so that the program never waits for us to read it.
  bool wait(int fd, short events, Clock::time_point until) {
    for (;;) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
      if (left <= 0) return false;
      pollfd watched[2] = {{fd, events, 0}, {errors_open_ ? spawned_.from_stderr.get() : -1, POLLIN, 0}};
      if (::poll(watched, 2, static_cast<int>(std::min<int64_t>(left, 1000))) < 0 && errno != EINTR) return false;
      if (watched[1].revents != 0) {
        drain_errors();
        if ((watched[1].revents & POLLIN) == 0) errors_open_ = false;
      }
      if (watched[0].revents != 0) return true;
    }
  }

  pool::Spawned spawned_;
  std::string input_, errors_;
  bool errors_open_ = true;
};

Json to_json(const space::Config& config) {
  return Json::parse(space::canonical(config));
}

const char* to_string(search::Fate fate) {
  static constexpr const char* kWords[] = {"ok", "early_stopped", "skipped", "compile_failed", "run_failed", "wrong"};
  return kWords[static_cast<int>(fate)];
}

class External final : public search::Strategy {
 public:
  External(const space::Space& space, std::unique_ptr<search::Strategy> own, std::unique_ptr<Program> program,
           const search::StrategyOptions& options, ExternalOptions external)
      : valid_(space), own_(std::move(own)), program_(std::move(program)), external_(std::move(external)) {
    for (const space::Config& config : options.known) proposed_.insert(config);
    Json params = Json::object();
    for (size_t i = 0; i < valid_.params(); ++i)
      for (int index = 0; index < valid_.width(i); ++index)
        params[valid_.name(i)].push_back(
            to_json({{valid_.name(i), valid_.value(i, static_cast<size_t>(index))}})[valid_.name(i)]);
    const bool is_counted = valid_.counted() && valid_.size() <= INT64_MAX;
    send({{"space",
           {{"params", params},
            {"valid", is_counted ? Json(static_cast<int64_t>(valid_.size())) : Json()},
            {"trials", options.trials},
            {"seed", options.seed}}}});
  }
  ~External() override {
    if (program_) send({{"end", true}});
  }

  std::string name() const override { return "external"; }
  uint64_t total() const override { return own_->total(); }
  bool adaptive() const override { return true; }

  std::vector<space::Config> ask(size_t count) override {
    std::vector<space::Config> batch;
    if (count == 0) return batch;
    if (program_) {
      send({{"ask", count}});
      if (program_) take_answer(count, batch);
    }
    while (batch.size() < count) {
      const auto more = own_->ask(1);
      if (more.empty()) break;
      if (proposed_.insert(more.front()).second) batch.push_back(more.front());
    }
    return batch;
  }

  void tell(const space::Config& config, const search::Told& told) override {
    own_->tell(config, told);
    if (!program_) return;
    send({{"tell",
           {{"config", to_json(config)},
            {"fate", to_string(told.fate)},
            {"time_us", told.time_us > 0 ? Json(told.time_us) : Json()},
            {"noise", told.noise}}}});
  }

 private:
  void send(const Json& message) {
    const std::string trouble = program_->write_line(message.dump(), Clock::now() + external_.patience);
    if (!trouble.empty()) give_up(trouble);
  }

  void take_answer(size_t count, std::vector<space::Config>& batch) {
    const Result<std::string> line = program_->read_line(Clock::now() + external_.patience);
    if (!line) return give_up(line.error());
    constexpr int kMaxDepth = 4;
    const Json answer = Json::parse(
        *line, [](int depth, Json::parse_event_t, Json&) { return depth <= kMaxDepth; }, false);
    if (!answer.is_object() || !answer.contains("configs") || !answer["configs"].is_array())
      return give_up("it answered `" + line->substr(0, 80) + "`, not {\"configs\": [...]}");
    for (const Json& each : answer["configs"]) {
      const auto config = space::parse_values(each.dump(-1, ' ', false, Json::error_handler_t::replace));
      if (batch.size() < count && config && valid_.point(*config) && proposed_.insert(*config).second)
        batch.push_back(*config);
    }
  }

  void give_up(const std::string& trouble) {
    const auto program = std::exchange(program_, nullptr);
    const std::string end = program->end();
    if (external_.on_trouble)
      external_.on_trouble("the strategy program is left out from here on: " + trouble + " (" + end +
                           "); the search goes on with `auto`");
  }

  const space::ValidSet valid_;
  std::unique_ptr<search::Strategy> own_;
  std::unique_ptr<Program> program_;
  ExternalOptions external_;
  std::set<space::Config> proposed_;
};

/// Quoted for /bin/sh.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

}  // namespace

Result<std::unique_ptr<search::Strategy>> start_external(const space::Space& space,
                                                         const search::StrategyOptions& options,
                                                         const ExternalOptions& external) {
  auto own = search::make_strategy(space, options);
  if (!own) return own.failure();
  pool::WorkerProgram program;
  program.path = "/bin/sh";
  std::error_code error;
  const std::string directory = std::filesystem::current_path(error).string();
  program.args = {"-c", "cd " + quoted(directory) + " && " + external.command};
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable)
    program.environment.emplace_back(*variable);
  auto started = pool::spawn(program);
  if (const auto* failure = std::get_if<pool::SpawnFailure>(&started))
    return Failure{"the strategy program can't be started: " + failure->message};
  return std::unique_ptr<search::Strategy>(std::make_unique<External>(
      space, std::move(*own), std::make_unique<Program>(std::move(std::get<pool::Spawned>(started))), options,
      external));
}

}  // namespace jitune::tune
