// What a look-up costs, beside a bare SELECT of the same cubin in the same run:
//   bench_store [--keys 1000,1000000] [--kib 40] [--repeats 31] [--lookups 300] [--directory /tmp]
// Each repeat is one new process for the store and one for bare SQLite, in turn, so that the machine's other load meets
// both alike. `first`: from opening the file to the verified cubin in hand. `again`: a key that this process has looked
// up before. `other`: one that it has not; what is read must be hashed, so the SELECT is given the same hash to make.
// The bare SELECT knows the cubin's own hash: one prepared statement on one table. Ends with 1 when a ratio is over its
// bar.
#include "store/store.hpp"

#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/hash.hpp"
#include "store/sqlite.hpp"

using namespace jitune;

namespace {

constexpr int kCubins = 1000;

struct Arguments {
  std::vector<int> keys = {1000, 1'000'000};
  int kib = 40, repeats = 31, lookups = 300;
  std::string directory = "/tmp";
};

/// Nanoseconds; of `other` and `again` the median of a process's look-ups.
struct Times {
  double first = 0, other = 0, again = 0;
};

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "bench_store: %s\n", why.c_str());
  std::_Exit(2);
}

std::string name(const char* what, int i) {
  return sha256_hex(what + std::to_string(i));
}

std::string cubin(int i, int kib) {
  std::mt19937_64 random(static_cast<uint64_t>(i));
  std::string bytes(static_cast<size_t>(kib) << 10, '\0');
  for (size_t at = 0; at + 8 <= bytes.size(); at += 8) {
    const uint64_t word = random();
    std::memcpy(bytes.data() + at, &word, 8);
  }
  return bytes;
}

void fill_keys(store::Database& database, int keys, const std::vector<std::string>& cubins, int kib) {
  const int64_t now = unix_now();
  for (int i = 0; i < keys; ++i) {
    const std::string problem = "{\"M\":" + std::to_string(i) + ",\"N\":4096,\"T\":\"half\"}";
    database
        .prepare(
            "INSERT INTO keys VALUES (?,?,'rmsnorm','',?,'rmsnorm<{T}, {BLOCK}>','{\"macros\":[\"VEC\"],\"options\":["
            "\"--use_fast_math\"]}',?,?,'sm_90a',90,132,140,62914560,1980,3201,'13.0.88','cold,median,3-7','{}','{}',1,"
            "?,?)")
        .bind(i + 1, name("key", i), name("source", i % 40), name("launch", i % 40), problem, now, now)
        .run();
    database
        .prepare(
            "INSERT INTO artifacts VALUES (?,?,'rmsnorm',?,?,'sm_90a','13.0.88','ok',212.5,"
            "'_Z7rmsnormI6__halfLi128EEvPT_PKS1_S4_if',40,1024,0,0,?,?,'',?,?,'')")
        .bind(i + 1, name("build", i), i % 200 + 1, name("source", i % 40), kib << 10,
              cubins[static_cast<size_t>(i) % cubins.size()], now, now)
        .run();
    database.prepare("INSERT INTO winners VALUES (?,NULL,?,?,12.5,20.0,0,?)")
        .bind(i + 1, i % 200 + 1, i + 1, now)
        .run();
  }
}

/// A database with that many winners; of 1000 different cubins, for a million of them would fill the disk.
void make(const std::string& path, int keys, int kib) {
  const auto create = [&] {
    if (const auto opened = store::Store::open({.path = path, .must_be_file = true}); !opened) die(opened.error());
  };
  create();
  {
    store::Database database(path, SQLITE_OPEN_READWRITE);
    database.execute("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA cache_size=-1000000");
    database.execute("BEGIN");
    for (int i = 0; i < 200; ++i)
      database.prepare("INSERT INTO configs VALUES (?,?)")
          .bind(i + 1, "{\"BLOCK\":" + std::to_string(32 * i) + ",\"STAGES\":3,\"VEC\":4}")
          .run();
    std::vector<std::string> cubins;
    for (int i = 0; i < std::min(kCubins, keys); ++i) {
      const std::string bytes = cubin(i, kib);
      cubins.push_back(sha256_hex(bytes));
      database.prepare("INSERT INTO cubins VALUES (?,?)").bind(cubins.back(), store::Blob{bytes}).run();
    }
    // Made again at the end: sorted, a million rows take seconds.
    std::vector<std::string> names, indexes;
    {
      store::Statement row = database.prepare("SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql <> ''");
      while (row.next()) {
        names.push_back(row.text());
        indexes.push_back(row.text());
      }
    }
    for (const std::string& index : names) database.execute(("DROP INDEX " + index).c_str());
    fill_keys(database, keys, cubins, kib);
    for (const std::string& index : indexes) database.execute(index.c_str());
    database.execute("COMMIT");
  }
  create();  // with its own journal again
}

double ns(const std::function<void()>& work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// So that all of it is in the machine's memory: what a disk costs is not the question. Nobody here has it open.
void read_through(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> piece(size_t{1} << 20);
  while (file.read(piece.data(), static_cast<std::streamsize>(piece.size())))
    ;
}

/// What is looked up: `count` keys all over the file, others for each seed, with the hashes of their cubins.
struct Wanted {
  std::vector<std::string> keys, cubins;
};

Wanted want(const std::string& path, int keys, int count, unsigned seed) {
  Wanted wanted;
  std::mt19937 random(seed);
  store::Database database(path, SQLITE_OPEN_READWRITE);
  for (int i = 0; i < count; ++i) {
    wanted.keys.push_back(name("key", static_cast<int>(random() % static_cast<unsigned>(keys))));
    store::Statement row = database.prepare(
        "SELECT a.cubin_sha256 FROM keys k JOIN winners w USING (key_id) JOIN artifacts a USING (artifact_id) WHERE "
        "k.key_sha256 = ?");
    if (!row.bind(wanted.keys.back()).next()) die("a key is missing");
    wanted.cubins.push_back(row.text());
  }
  return wanted;
}

template <class Find, class FindNew>
Times look_up(double first, size_t count, Find find, FindNew find_new) {
  std::vector<double> other, again;
  for (size_t i = 1; i < count; ++i) {
    other.push_back(ns([&] { find_new(i); }));
    again.push_back(ns([&] { find(i); }));
  }
  return {first, median(other), median(again)};
}

Times ours(const std::string& path, const Wanted& wanted, size_t kib) {
  std::unique_ptr<store::Store> store;
  const auto find = [&](size_t i) {
    const auto found = store->find_winner(wanted.keys[i]);
    if (!found || !*found || (*found)->artifact->cubin.size() != kib << 10) die("no winner");
  };
  const double first = ns([&] {
    auto opened = store::Store::open({.path = path});
    if (!opened || (*opened)->in_memory()) die("the database can't be used");
    store = std::move(*opened);
    find(0);
  });
  return look_up(first, wanted.keys.size(), find, find);
}

Times bare(const std::string& path, const Wanted& wanted, size_t kib) {
  sqlite3* connection = nullptr;
  sqlite3_stmt* statement = nullptr;
  const auto find = [&](size_t i) {
    const std::string& hash = wanted.cubins[i];
    sqlite3_bind_text(statement, 1, hash.data(), static_cast<int>(hash.size()), SQLITE_STATIC);
    if (sqlite3_step(statement) != SQLITE_ROW) die("no cubin");
    const std::string bytes(static_cast<const char*>(sqlite3_column_blob(statement, 0)),
                            static_cast<size_t>(sqlite3_column_bytes(statement, 0)));
    if (bytes.size() != kib << 10) die("another cubin");
    sqlite3_reset(statement);
    return bytes;
  };
  const double first = ns([&] {
    if (sqlite3_open_v2(path.c_str(), &connection, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr) != SQLITE_OK ||
        sqlite3_prepare_v2(connection, "SELECT cubin FROM cubins WHERE cubin_sha256 = ?", -1, &statement, nullptr) !=
            SQLITE_OK)
      die("SQLite can't open the file");
    find(0);
  });
  const Times times = look_up(first, wanted.cubins.size(), find, [&](size_t i) {
    if (sha256_hex(find(i)) != wanted.cubins[i]) die("a damaged cubin");
  });
  sqlite3_finalize(statement);
  sqlite3_close(connection);
  return times;
}

/// Runs `work` in a new process of this program and gives back its times.
Times in_new_process(const std::vector<std::string>& arguments) {
  int fds[2];
  if (::pipe(fds) != 0) die("no pipe");
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(fds[1], 1);
    std::vector<char*> argv;
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    ::execv("/proc/self/exe", argv.data());
    std::_Exit(127);
  }
  ::close(fds[1]);
  Times times;
  const bool told = ::read(fds[0], &times, sizeof times) == sizeof times;
  ::close(fds[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!told || status != 0) die("a measuring process failed");
  return times;
}

int child(char** argv) {
  const std::string path = argv[3];
  const int keys = std::atoi(argv[4]), count = std::atoi(argv[5]), kib = std::atoi(argv[6]);
  // The keys come from a process of their own, or the file would be in this one's memory and its code warm.
  Wanted wanted;
  std::vector<char> text(static_cast<size_t>(count) * 130 + 1);
  int fds[2];
  if (::pipe(fds) != 0) return 2;
  const pid_t helper = ::fork();
  if (helper == 0) {
    const Wanted found = want(path, keys, count, static_cast<unsigned>(std::atoi(argv[7])));
    for (size_t i = 0; i < found.keys.size(); ++i)
      if (::write(fds[1], (found.keys[i] + found.cubins[i]).data(), 128) != 128) std::_Exit(2);
    std::_Exit(0);
  }
  ::close(fds[1]);
  std::string all;
  char buffer[4096];
  for (ssize_t n = 0; (n = ::read(fds[0], buffer, sizeof buffer)) > 0;) all.append(buffer, static_cast<size_t>(n));
  ::waitpid(helper, nullptr, 0);
  for (size_t at = 0; at + 128 <= all.size(); at += 128) {
    wanted.keys.push_back(all.substr(at, 64));
    wanted.cubins.push_back(all.substr(at + 64, 64));
  }
  if (wanted.keys.size() != static_cast<size_t>(count)) return 2;
  const Times times = argv[2] == std::string("ours") ? ours(path, wanted, static_cast<size_t>(kib))
                                                     : bare(path, wanted, static_cast<size_t>(kib));
  return ::write(1, &times, sizeof times) == sizeof times ? 0 : 2;
}

Times medians(const std::vector<Times>& all) {
  const auto of = [&](double Times::*field) {
    std::vector<double> values;
    for (const Times& times : all) values.push_back(times.*field);
    return median(values);
  };
  return {of(&Times::first), of(&Times::other), of(&Times::again)};
}

bool row(const char* what, double mine, double other, double bar) {
  const double ratio = mine / other;
  std::printf("  %-28s %9.1f us %9.1f us %7.2f   at most %3.1f  %s\n", what, mine / 1e3, other / 1e3, ratio, bar,
              ratio <= bar ? "pass" : "FAIL");
  return ratio <= bar;
}

std::vector<int> numbers(const char* text) {
  std::vector<int> values;
  for (const char* at = text; *at != '\0'; at += *at == ',' ? 1 : 0) {
    char* end = nullptr;
    values.push_back(static_cast<int>(std::strtol(at, &end, 10)));
    if (end == at || values.back() < 1) die(std::string("not a list of numbers: ") + text);
    at = end;
  }
  return values;
}

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--keys")
      arguments.keys = numbers(argv[i + 1]);
    else if (option == "--kib")
      arguments.kib = numbers(argv[i + 1])[0];
    else if (option == "--repeats")
      arguments.repeats = numbers(argv[i + 1])[0];
    else if (option == "--lookups")
      arguments.lookups = numbers(argv[i + 1])[0] + 1;
    else if (option == "--directory")
      arguments.directory = argv[i + 1];
    else
      die("unknown option " + option);
  }
  return arguments;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 8 && std::strcmp(argv[1], "--child") == 0) return child(argv);
  const Arguments arguments = parse(argc, argv);
  std::string directory = arguments.directory + "/jitune-bench-XXXXXX";
  if (::mkdtemp(directory.data()) == nullptr) die("cannot make a directory in " + arguments.directory);
  bool good = true;
  std::vector<Times> all;
  for (const int keys : arguments.keys) {
    const std::string path = directory + "/" + std::to_string(keys) + ".db";
    const double made_ns = ns([&] { make(path, keys, arguments.kib); });
    read_through(path);
    std::vector<Times> mine, other;
    for (int i = 0; i < arguments.repeats; ++i)
      for (const char* who : {"ours", "bare"})
        (who[0] == 'o' ? mine : other)
            .push_back(
                in_new_process({argv[0], "--child", who, path, std::to_string(keys), std::to_string(arguments.lookups),
                                std::to_string(arguments.kib), std::to_string(i)}));
    const Times here = medians(mine), there = medians(other);
    std::printf("%d keys (%.0f MiB, made in %.1f s), cubins of %d KiB, medians of %d processes:\n", keys,
                static_cast<double>(std::filesystem::file_size(path)) / (1 << 20), made_ns / 1e9, arguments.kib,
                arguments.repeats);
    std::printf("  %-28s %12s %12s %7s\n", "", "store", "SELECT", "ratio");
    good = row("first, in a new process", here.first, there.first, 4) && good;
    good = row("later, the same key", here.again, there.again, 1.5) && good;
    good = row("later, another key (+ hash)", here.other, there.other, 1.5) && good;
    all.push_back(here);
  }
  if (all.size() > 1) {
    std::printf("%d keys against %d:\n  %-28s %12s %12s %7s\n", arguments.keys.back(), arguments.keys.front(), "",
                "many", "few", "ratio");
    good = row("first, in a new process", all.back().first, all.front().first, 2) && good;
    good = row("later, the same key", all.back().again, all.front().again, 2) && good;
    good = row("later, another key", all.back().other, all.front().other, 2) && good;
  }
  if (std::getenv("KEEP") == nullptr) std::filesystem::remove_all(directory);
  return good ? 0 : 1;
}
