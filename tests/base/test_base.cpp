// Hashes, canonical JSON, files, the log and the text of errors.
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/dynamic_library.hpp"
#include "base/fd.hpp"
#include "base/files.hpp"
#include "base/hash.hpp"
#include "base/json.hpp"
#include "base/log.hpp"
#include "base/result.hpp"
#include "jitune/error.hpp"
#include "support/support.hpp"

using namespace jitune;

TEST_CASE("SHA-256 gives the values of FIPS 180-4's examples") {
  CHECK(sha256_hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(sha256_hex(std::string(1'000'000, 'a')) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("no two sequences of fields hash alike") {
  const auto hash = [](const std::vector<std::pair<std::string, std::string>>& fields) {
    FieldHasher hasher;
    for (const auto& [label, value] : fields) hasher.field(label, value);
    return hasher.finish();
  };
  CHECK(hash({{"ab", "c"}}) == hash({{"ab", "c"}}));
  CHECK(hash({{"ab", "c"}}) != hash({{"a", "bc"}}));
  CHECK(hash({{"a", "b"}, {"c", "d"}}) != hash({{"a", "bc"}, {"", "d"}}));
  CHECK(hash({{"a", ""}}) != hash({{"", "a"}}));
  CHECK(hash({{"a", ""}, {"", ""}}) != hash({{"a", ""}}));
  CHECK(hash({{"option", "-I -O2"}}) != hash({{"option", "-I"}, {"option", "-O2"}}));
  CHECK(hash({{"a", std::string("x\0y", 3)}}) != hash({{"a", "x"}}));
  CHECK(hash({}) == sha256_hex(""));
}

TEST_CASE("a field hasher keeps a readable text, and numbers hash as their digits") {
  FieldHasher numbers, digits;
  numbers.field("n", -12);
  digits.field("n", "-12");
  numbers.field("long", std::string(300, 'x'));
  digits.field("long", std::string(300, 'x'));
  CHECK(numbers.text() == "n = -12\nlong = " + std::string(200, 'x') + "...\n");
  CHECK(numbers.finish() == digits.finish());
}

TEST_CASE("canonical JSON sorts names and leaves out spaces") {
  CHECK(canonical(Json::parse(R"({ "b" : 1, "a" : [ true, "x" ] })")) == R"({"a":[true,"x"],"b":1})");
  CHECK(canonical(Json{{"bytes", "\xff"}}) == "{\"bytes\":\"\xEF\xBF\xBD\"}");
  CHECK(canonical(Json(int64_t{9007199254740993})) == "9007199254740993");
}

TEST_CASE("files: bytes come back, replacement is whole, failures name the path") {
  test::TempDir dir;
  const std::string bytes("a\0b\n", 4);
  REQUIRE(write_file_atomically(dir / "x", "old").ok());
  REQUIRE(write_file_atomically(dir / "x", bytes).ok());
  const auto read = read_file(dir / "x");
  REQUIRE(read.ok());
  CHECK(*read == bytes);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path())) files += entry.is_regular_file();
  CHECK(files == 1);  // nothing temporary stays

  const auto missing = read_file(dir / "none");
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().find(dir / "none") != std::string::npos);
  CHECK(missing.error().find("No such file") != std::string::npos);
  CHECK(read_file(dir.path()).error().find("is a directory") != std::string::npos);
  CHECK(write_file_atomically(dir / "no/such/dir", "x").error().find(dir / "no/such/dir") != std::string::npos);
}

TEST_CASE("a failed replacement leaves the old file and no litter") {
  test::TempDir dir;
  std::filesystem::create_directories(dir / "target/inside");
  CHECK_FALSE(write_file_atomically(dir / "target", "x").ok());
  CHECK(std::filesystem::is_directory(dir / "target/inside"));
  int entries = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(dir.path())) ++entries;
  CHECK(entries == 1);
}

TEST_CASE("own_module_path names this program") {
  CHECK(std::filesystem::equivalent(own_module_path(), "/proc/self/exe"));
}

namespace {

struct Heard {
  std::vector<std::string> lines;
  Log* log = nullptr;
};

void hear(void* user, const Event& event) noexcept {
  auto& heard = *static_cast<Heard*>(user);
  heard.lines.push_back(std::string(event.code) + "|" + std::string(event.kernel) + "|" + std::string(event.text));
  if (heard.log != nullptr) heard.log->warning("nested", "", "from within the hook");
}

}  // namespace

TEST_CASE("a warning is said once for each key, other events always") {
  Heard heard;
  Log log({&hear, &heard}, Log::Threshold::warn, false);
  log.warning("locked", "k", "first", "db1");
  log.warning("locked", "k", "second", "db1");
  log.warning("locked", "k", "third", "db2");
  log.warning("full", "k", "fourth", "db1");
  log.warning("always", "", "fifth");
  log.warning("always", "", "fifth");
  log.info("told", "k", "sixth");
  CHECK(heard.lines == std::vector<std::string>{"locked|k|first", "locked|k|third", "full|k|fourth", "always||fifth",
                                                "always||fifth", "told|k|sixth"});
}

TEST_CASE("a hook that calls back hears nothing of its own calls") {
  Heard heard;
  Log log({&hear, &heard}, Log::Threshold::warn, false);
  heard.log = &log;
  log.warning("outer", "", "text");
  log.warning("outer", "", "again");
  CHECK(heard.lines == std::vector<std::string>{"outer||text", "outer||again"});
}

TEST_CASE("an error's text has the kernel, the message, the text and a mark under the column") {
  const Error error(ErrorCode::bad_expression, "'BLOK' is not known", "rmsnorm", "BLOK * 4", 1);
  CHECK(std::string(error.what()) == "kernel 'rmsnorm': 'BLOK' is not known\n  BLOK * 4\n  ^ column 1");
  CHECK(error.message() == "'BLOK' is not known");
  CHECK(error.kernel() == "rmsnorm");
  CHECK(error.text() == "BLOK * 4");
  CHECK(error.column() == 1);
  CHECK(std::string(to_string(error.code())) == "bad_expression");
  CHECK(std::string(Error(ErrorCode::no_gpu, "no GPU").what()) == "no GPU");
  CHECK(std::string(Error(ErrorCode::no_gpu, "m", "", "a b", 3).what()) == "m\n  a b\n    ^ column 3");
  CHECK(std::string(Error(ErrorCode::no_gpu, "m", "", "a b").what()) == "m\n  a b");
}

TEST_CASE("every code has its own word, and its number is stable") {
  const char* words[] = {"bad_definition", "bad_expression", "bad_problem", "bad_arguments", "no_runnable_config",
                         "not_prepared",   "launch_failed",  "bad_options", "lifetime",      "no_gpu"};
  for (int i = 0; i < 10; ++i) CHECK(std::string(to_string(static_cast<ErrorCode>(i + 1))) == words[i]);
}

TEST_CASE("Result holds a value or a failure") {
  const Result<int> good = 3;
  const Result<int> bad = Failure{"why"};
  CHECK(good.ok());
  CHECK(*good == 3);
  CHECK_FALSE(bad);
  CHECK(bad.error() == "why");
  CHECK(Result<void>().ok());
  CHECK(Result<void>(Failure{"no"}).error() == "no");
}

TEST_CASE("UniqueFd closes what it owns, once") {
  int pipe_ends[2];
  REQUIRE(::pipe(pipe_ends) == 0);
  struct stat info {};
  {
    UniqueFd first(pipe_ends[0]);
    UniqueFd second(std::move(first));
    CHECK_FALSE(static_cast<bool>(first));  // NOLINT(bugprone-use-after-move): that is what is tested
    CHECK(second.get() == pipe_ends[0]);
    second = UniqueFd(pipe_ends[1]);
    CHECK(::fstat(pipe_ends[0], &info) != 0);
    CHECK(::fstat(pipe_ends[1], &info) == 0);
  }
  CHECK(::fstat(pipe_ends[1], &info) != 0);
}

TEST_CASE("DynamicLibrary finds a symbol, and says why it can't load") {
  const auto library = DynamicLibrary::open("libm.so.6");
  REQUIRE(library.ok());
  CHECK(library->find("cos") != nullptr);
  CHECK(library->find("no_such_symbol_here") == nullptr);
  const auto missing = DynamicLibrary::open("libjitune-none.so");
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().find("libjitune-none.so") != std::string::npos);
}
