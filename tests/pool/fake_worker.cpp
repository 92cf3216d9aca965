// A worker whose behaviour is chosen by its request: {"fake": "segv"}, or a compile request whose source begins with
// `//!fake segv`. Words between the kind and the parent's pid on its command line choose how it starts.
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/worker_start.hpp"
#include "compile/artifact.hpp"
#include "pool/fake_cubin.hpp"
#include "wire/frame.hpp"

extern char** environ;

namespace {

using jitune::Json;
using jitune::WorkerPipes;
namespace wire = jitune::wire;
namespace compile = jitune::compile;

void sleep_ms(long ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

void write_raw(int fd, const std::string& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t put = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (put <= 0) std::_Exit(9);
    done += static_cast<size_t>(put);
  }
}

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Work whose span of time goes to a file when it is done.
class AtWork {
 public:
  explicit AtWork(std::string path) : path_(std::move(path)) {}
  ~AtWork() {
    char line[96];
    const int size = std::snprintf(line, sizeof line, "%d %.6f %.6f\n", ::getpid(), begin_, now_ms());
    const int fd = path_.empty() ? -1 : ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0) (void)!::write(fd, line, static_cast<size_t>(size));
    if (fd >= 0) ::close(fd);
  }
  AtWork(const AtWork&) = delete;
  AtWork& operator=(const AtWork&) = delete;

 private:
  std::string path_;
  double begin_ = now_ms();
};

/// Uses up the stack; the volatile data keeps the calls from being folded into a loop.
int overflow(int depth) {
  volatile char page[4096];
  page[0] = static_cast<char>(depth);
  return depth < 0 ? 0 : overflow(depth + 1) + page[0];
}

/// The line of /proc/self/status that begins with `name`.
std::string status_line(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.rfind(name, 0) == 0) return line.substr(name.size() + 1);
  return "";
}

/// What a worker sees of the world it was started in.
Json describe_self() {
  Json json;
  json["pid"] = static_cast<int64_t>(::getpid());
  json["ppid"] = static_cast<int64_t>(::getppid());
  json["pgid"] = static_cast<int64_t>(::getpgrp());
  json["nice"] = ::getpriority(PRIO_PROCESS, 0);
  json["blocked"] = status_line("SigBlk");
  json["ignored"] = status_line("SigIgn");
  json["cwd"] = std::filesystem::current_path().string();
  rlimit core{};
  ::getrlimit(RLIMIT_CORE, &core);
  json["core_limit"] = static_cast<int64_t>(core.rlim_cur);
  json["fds"] = Json::array();
  for (int fd = 0; fd < 1024; ++fd)
    if (::fcntl(fd, F_GETFD) >= 0) json["fds"].push_back(fd);
  json["environment"] = Json::array();
  for (char** one = environ; *one != nullptr; ++one) json["environment"].push_back(*one);
  return json;
}

Json artifact_reply(compile::Artifact artifact) {
  return compile::to_json(artifact);
}

/// What a good compile worker would answer.
Json good_artifact(const Json& request) {
  compile::Artifact artifact;
  artifact.status = compile::Status::ok;
  artifact.lowered_name = wire::get_string(request, "entry", "k");
  artifact.cubin = jitune::test::fake_cubin(artifact.lowered_name);
  artifact.regs = 32;
  artifact.compile_ms = 1;
  return artifact_reply(artifact);
}

/// What a process in an uninterruptible call of the driver looks like from outside: SIGKILL is sent, and the process
/// stays until `ms` are over. Another process traces a thread of ours, and a process whose killed thread its tracer has
/// not taken notice of is not gone. Returns false where tracing is not allowed.
bool hold_on(long ms) {
  std::atomic<pid_t> thread{0};
  std::thread([&thread] {
    thread = static_cast<pid_t>(::syscall(SYS_gettid));
    for (;;) sleep_ms(1000);
  }).detach();
  while (thread == 0) sleep_ms(1);
  int said[2];
  if (::pipe(said) != 0) return false;
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  if (::fork() == 0) {
    ::setsid();  // not killed with the worker
    const char held = ::ptrace(PTRACE_SEIZE, thread.load(), nullptr, nullptr) == 0 ? 'y' : 'n';
    (void)!::write(said[1], &held, 1);
    for (int fd = 0; fd < 256; ++fd) ::close(fd);  // the host is to see the worker's pipes end
    if (held == 'y') sleep_ms(ms);
    std::_Exit(0);
  }
  char held = 'n';
  (void)!::read(said[0], &held, 1);
  return held == 'y';
}

/// Faults that end or break the worker. Returns false when `word` is not one of them.
void play_fault(const WorkerPipes& pipes, const std::string& word, int64_t id, int64_t number) {
  std::signal(SIGSEGV, SIG_DFL);  // sanitizers put a handler of their own there
  if (word == "segv") std::raise(SIGSEGV);
  if (word == "abort") std::abort();
  if (word == "overflow") std::exit(overflow(0));
  if (word == "exit") std::_Exit(static_cast<int>(number));
  if (word == "last-words") {
    std::fprintf(stderr, "the end is near\n");
    std::raise(SIGSEGV);
  }
  if (word == "stuck" && !hold_on(number)) write_raw(pipes.out, "no tracing here\n");
  if (word == "kill") std::raise(SIGKILL);
  if (word == "stop") std::raise(SIGSTOP);
  if (word == "spin")
    for (volatile unsigned spins = 0; spins < 10;) spins = 1;
  if (word == "sigign") {
    for (int one = 1; one < 32; ++one) std::signal(one, SIG_IGN);
    for (;;) sleep_ms(1000);
  }
  if (word == "oom") {
    const rlimit limit{256u << 20, 256u << 20};
    ::setrlimit(RLIMIT_AS, &limit);
    std::vector<std::string> hoard;
    for (;;) hoard.emplace_back(1u << 20, 'x');  // ends in bad_alloc, then abort
  }
  if (word == "garbage") write_raw(pipes.out, "kernel compiled in 3 ms\n");
  if (word == "short-garbage") write_raw(pipes.out, "ok");
  if (word == "hugelen") write_raw(pipes.out, std::string("JTF1\xff\xff\xff\xff", 8));
  if (word == "partial") {
    const std::string frame = wire::encode({{"id", id}, {"reply", "a reply that does not arrive whole"}});
    write_raw(pipes.out, frame.substr(0, frame.size() / 2));
    if (number >= 0) std::_Exit(static_cast<int>(number));
  }
  if (word == "close-out") ::close(pipes.out);
  if (word == "close-in") ::close(pipes.in);
  if (word == "close-out-exit") {
    ::close(pipes.out);
    sleep_ms(20);
    std::_Exit(5);
  }
  for (;;) sleep_ms(1000);
}

/// Answers, or does what is no answer and does not return.
Json answer(const WorkerPipes& pipes, const Json& request, const std::string& word, int64_t id, int64_t number) {
  if (word == "echo") return request.contains("payload") ? request["payload"] : Json();
  if (word == "self") return describe_self();
  if (word == "self-slowly") {
    sleep_ms(number);
    return describe_self();
  }
  if (word == "work") {
    const AtWork work(wire::get_string(request, "path"));
    sleep_ms(number);
    return "worked";
  }
  if (word == "sleep") {
    sleep_ms(number);
    return "slept";
  }
  if (word == "noise") {
    std::printf("noise by printf\n");
    std::fflush(stdout);
    write_raw(1, "noise by write\n");
    char byte = 0;
    return ::read(0, &byte, 1) == 0 ? "quiet" : "stdin is not empty";
  }
  if (word == "flood") {
    const std::string line(1023, 'f');
    for (int64_t i = 0; i < number; ++i) write_raw(2, line + "\n");
    return "flooded";
  }
  if (word == "bytes") return wire::to_binary(std::string(static_cast<size_t>(number), 'b'));
  if (word == "hoard") {
    static std::vector<std::string> hoard;
    hoard.emplace_back(static_cast<size_t>(number), 'h');
    return "hoarded";
  }
  if (word == "cubin") return good_artifact(request);
  if (word == "badsha") {
    Json reply = good_artifact(request);
    reply["cubin_sha256"] = std::string(64, '0');
    return reply;
  }
  if (word == "notelf" || word == "empty" || word == "biglog") {
    compile::Artifact artifact;
    artifact.status = word == "biglog" ? compile::Status::error : compile::Status::ok;
    artifact.lowered_name = "k";
    if (word == "notelf") artifact.cubin = std::string(5000, 'n');
    if (word == "biglog") artifact.log = "first line\n" + std::string(20u << 20, '.') + "\nlast line\n";
    return artifact_reply(artifact);
  }
  if (word == "error") {
    compile::Artifact artifact;
    artifact.log = "kernel.cu(3): error: it does not compile";
    return artifact_reply(artifact);
  }
  play_fault(pipes, word, id, number);
  return {};
}

/// `//!fake word number` at the head of a source, or the fields fake and number.
void read_behaviour(const Json& request, std::string& word, int64_t& number) {
  word = wire::get_string(request, "fake");
  number = wire::get_int(request, "number", -1);
  const std::string source = wire::get_string(request, "source_text");
  if (!word.empty()) return;
  word = "cubin";
  constexpr char kMark[] = "//!fake ";
  if (source.rfind(kMark, 0) == 0) std::istringstream(source.substr(sizeof kMark - 1)) >> word >> number;
}

int serve(const WorkerPipes& pipes) {
  for (;;) {
    const auto message = wire::read_frame(pipes.in);
    if (!message || message->is_null()) return message ? 0 : 1;
    const Json& request = (*message)["request"];
    int64_t id = wire::get_int(*message, "id");
    std::string word;
    int64_t number = -1;
    read_behaviour(request, word, number);
    if (word == "wrongid") {
      (void)wire::write_frame(pipes.out, {{"id", id + 1000}, {"reply", "for another"}});
      for (;;) sleep_ms(1000);
    }
    if (word == "last" || word == "answer-and-exit") {
      Json reply = {{"id", id}, {"reply", "done"}};
      if (word == "last") reply["last"] = true;
      (void)wire::write_frame(pipes.out, reply);
      if (word == "last") sleep_ms(30);
      return 70;
    }
    if (word == "twice") {
      (void)wire::write_frame(pipes.out, {{"id", id}, {"reply", "one"}});
      word = "echo";
    }
    if (!wire::write_frame(pipes.out, {{"id", id}, {"reply", answer(pipes, request, word, id, number)}})) return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const auto pipes = jitune::start_worker(std::atoi(argv[argc - 1]));
  if (!pipes) {
    std::fprintf(stderr, "%s\n", pipes.error().c_str());
    return 1;
  }
  Json hello = {{"hello", argv[1]},
                {"protocol", wire::kProtocolVersion},
                {"version", JITUNE_VERSION},
                {"pid", static_cast<int64_t>(::getpid())}};
  std::string log;
  for (int i = 2; i + 1 < argc; ++i) {
    const std::string word = argv[i];
    if (word.rfind("log=", 0) == 0) log = word.substr(4);
    if (word.rfind("slow-hello=", 0) == 0) {
      const AtWork work(log);
      sleep_ms(std::atol(word.c_str() + 11));
    }
    if (word == "moody-hello" && ::getpid() % 16 == 0) sleep_ms(::getpid() / 16 % 40);
    if (word == "moody-hello" && ::getpid() % 64 == 1) return 4;
    if (word == "no-hello")
      for (;;) sleep_ms(1000);
    if (word == "die-at-start") {
      std::fprintf(stderr, "error while loading shared libraries: libnothing.so\n");
      return 127;
    }
    if (word == "wrong-protocol") hello["protocol"] = 99;
    if (word == "wrong-version") hello["version"] = "0.0.1";
    if (word == "wrong-kind") hello["hello"] = "paint";
    if (word == "garbage-hello") write_raw(pipes->out, "Welcome to the worker!\n");
    if (word == "die-after-hello") {
      (void)wire::write_frame(pipes->out, hello);
      return 3;
    }
  }
  if (!wire::write_frame(pipes->out, hello)) return 1;
  return serve(*pipes);
}
