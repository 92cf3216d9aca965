#include "base/files.hpp"
#include "base/hash.hpp"
#include "base/json.hpp"
#include "run_prewarm.hpp"
#include "store/store.hpp"

using namespace jitune;
using namespace jitune::test;

namespace {

/// What must hold for every kind of bad input: this exit code, one message with these parts, nothing on stdout, and no
/// database made.
void refused(const std::string& home, const std::string& arguments, int exit_code,
             std::initializer_list<const char*> parts, const std::string& prefix = kNoGpu) {
  const ProgramResult result = prewarm(home, arguments, prefix);
  CAPTURE(arguments);
  INFO(result.err);
  CHECK(result.exit_code == exit_code);
  for (const std::string part : parts) {
    CAPTURE(part);
    CHECK(contains(result.err, part));
  }
  CHECK(result.err.substr(0, 13) == "jit-prewarm: ");
  CHECK(result.out.empty());
  CHECK_FALSE(exists(home + "/cache"));
  CHECK_FALSE(exists(home + "/x.db"));
}

const std::string kProblem = " --problem T=half,n=4096 --database x.db";

void edit(const std::string& path, const std::string& from, const std::string& to) {
  std::string text = content(path);
  REQUIRE(contains(text, from));
  text.replace(text.find(from), from.size(), to);
  write_file(path, text);
}

}  // namespace

TEST_CASE("command lines that can't be understood") {
  TempDir home;
  write_scale_kernel(home.path());
  const std::string& h = home.path();
  refused(h, "tunes scale.toml", 2, {"there is no command 'tunes'", "did you mean 'tune'", "doctor"});
  refused(h, "tune", 2, {"which kernel?", "jit-prewarm tune --help"});
  refused(h, "show", 2, {"which key?", "jit-prewarm list"});
  refused(h, "compile scale.toml --problme T=half,n=1", 2,
          {"there is no option '--problme'", "did you mean '--problem'"});
  refused(h, "list --databse x.db", 2, {"there is no option '--databse'", "did you mean '--database'"});
  refused(h, "list x.db", 2, {"'x.db' is one argument too many", "jit-prewarm list --help"});
  refused(h, "compile scale.toml --limit 0" + kProblem, 2, {"--limit"});
  refused(h, "compile scale.toml --jobs lots" + kProblem, 2, {"--jobs", "lots"});
  refused(h, "tune scale.toml --budget 30" + kProblem, 2, {"--budget", "'30' is not a duration", "500ms, 30s"});
  refused(h, "compile scale.toml --arch sm_90 --device 0" + kProblem, 2, {"--arch", "--device"});
  refused(h, "compile scale.toml --arch sm_91" + kProblem, 2, {"--arch sm_91: unknown", "sm_90"});
  refused(h, "compile scale.toml --arch sm_90 --problem T=half,n=4096 --database off", 2, {"--database", "PATH"});
}

TEST_CASE("what is missing, misspelt or left empty is named") {
  TempDir home;
  write_scale_kernel(home.path());
  const std::string& h = home.path();
  refused(h, "import", 2, {"which file?", "jit-prewarm export"});
  refused(h, "merge x.csv", 2, {"where to?", "--output"});
  refused(h, "check scale.toml", 2, {"--baseline"});
  refused(h, "compile --nope", 2, {"there is no option '--nope'"});
  refused(h, "import none.csv --database x.db", 2, {"none.csv: there is no such file"});
  refused(h, "check scale.toml --baseline none.csv", 2, {"none.csv: there is no such file"});
  refused(h, "list --database ''", 2, {"--database", "the path is empty"});
  refused(h, "list '--database=~/x.db'", 2, {"the shell did not replace ~", "$HOME/x.db"});
  refused(h, "tune scale.toml --seed -1" + kProblem, 2, {"--seed", "-1"});
  refused(h, "tune scale.toml --seed 99999999999999999999" + kProblem, 2, {"--seed"});
  refused(h, "tune scale.toml --strategy hls --strategy-command ./mine" + kProblem, 2, {"--strategy"});
  write_file(home / "notes.csv", "# replay-csv-1 without its header\n");
  refused(h, "replay notes.csv", 2, {"notes.csv", "line 1 is not the header"});
}

TEST_CASE("an environment that can't be understood") {
  TempDir home;
  write_scale_kernel(home.path());
  const std::string arguments = "compile scale.toml --arch sm_90" + kProblem;
  refused(home.path(), arguments, 2, {"JITUNE_LOG=loud", "off, warn, info"}, "JITUNE_LOG=loud");
  refused(home.path(), arguments, 2, {"JITUNE_COMPILE_WORKERS=many", "1 to 1024"}, "JITUNE_COMPILE_WORKERS=many");
}

TEST_CASE("an unknown, missing or impossible problem value") {
  TempDir home;
  write_scale_kernel(home.path());
  const std::string& h = home.path();
  const std::string base = "compile scale.toml --arch sm_90 --database x.db";
  refused(h, base, 2, {"no problem is given", "scale: --problem T=...,n=..."});
  refused(h, base + " --problem T=half,m=1", 2,
          {"--problem T=half,m=1", "kernel 'scale'", "no problem value 'm'", "needs 'n'", "are T and n"});
  refused(h, base + " --problem T=half", 2, {"kernel 'scale' needs 'n'", "are T and n"});
  refused(h, base + " --problem T=halff,n=4096", 2, {"--problem T=halff,n=4096", "'T'", "type word", "halff"});
  refused(h, base + " --problem T=half,n=big", 2, {"--problem T=half,n=big", "'n'", "number", "big"});
  refused(h, base + " --problem T=half,n", 2, {"'n' has no value", "NAME=VALUE"});
  write_file(home / "shapes.csv", "T,n\nhalf,4096\nhalf,4k\n");
  refused(h, base + " --problems shapes.csv", 2, {"shapes.csv:3", "'n', 4k"});
  write_file(home / "other.csv", "T,n\nhalf,4096\nhalf,word\n");
  refused(h, base + " --problems other.csv", 2, {"other.csv:3", "'n' must be a number", "word"});
  refused(h, base + " --problems none.csv", 2, {"--problems", "none.csv"});
  refused(h, base + " --kernel scales" + " --problem T=half,n=4096", 2, {"--kernel scales", "did you mean 'scale'"});
}

TEST_CASE("a problem that fits none of several kernels names each kernel's values") {
  TempDir home;
  write_scale_kernel(home.path());
  write_file(home / "other.toml", content(home / "scale.toml"));
  edit(home / "other.toml", "name = \"scale\"", "name = \"other\"");
  edit(home / "other.toml", "problem = [\"T\", \"n\"]", "problem = [\"T\", \"n\", \"flag\"]");
  refused(home.path(), "compile scale.toml other.toml --arch sm_90 --problem T=half,m=1 --database x.db", 2,
          {"none of the kernels", "kernel 'scale'", "kernel 'other'", "T, n and flag"});
  // One that fits a kernel is fine; the other kernel is left out with a word about it.
  const ProgramResult result =
      prewarm(home.path(), "space scale.toml other.toml --arch sm_90 --problem T=half,n=64", kNoGpu);
  CHECK(result.exit_code == 0);
  CHECK(contains(result.err, "kernel 'other' is left out"));
}

TEST_CASE("files that are missing or wrong") {
  TempDir home;
  write_scale_kernel(home.path());
  const std::string& h = home.path();
  const std::string rest = " --arch sm_90" + kProblem;
  refused(h, "compile none.toml" + rest, 3, {"none.toml"});
  refused(h, "tune none.toml" + kProblem, 3, {"none.toml"});  // the GPU is not asked for before

  write_file(home / "broken.toml", "format = 1\nname = \n");
  refused(h, "compile broken.toml" + rest, 3, {"broken.toml", "2"});

  write_file(home / "bad.toml", content(home / "scale.toml"));
  edit(home / "bad.toml", "n % VEC == 0", "n % VECS == 0");
  refused(h, "compile bad.toml" + rest, 3, {"scale", "VECS", "n % VECS == 0", "column 5", "'VEC'"});

  write_file(home / "nosource.toml", content(home / "scale.toml"));
  edit(home / "nosource.toml", "source = \"scale.cu\"", "source = \"gone.cu\"");
  refused(h, "compile nosource.toml" + rest, 3, {"gone.cu"});
}

TEST_CASE("no GPU, no NVRTC, no worker") {
  TempDir home;
  write_scale_kernel(home.path());
  const std::string& h = home.path();
  refused(h, "tune scale.toml" + kProblem, 4, {"Tuning needs a GPU", "jit-prewarm compile --arch sm_90", "doctor"});
  refused(h, "compile scale.toml" + kProblem, 4, {"--arch sm_90"});
  refused(h, "compile scale.toml --arch sm_90 --nvrtc /nowhere/libnvrtc.so.13" + kProblem, 4,
          {"/nowhere/libnvrtc.so.13", "CUDA Toolkit", "JITUNE_NVRTC"});
  refused(h, "compile scale.toml --arch sm_90 --worker /nowhere/jitune-worker" + kProblem, 4,
          {"/nowhere/jitune-worker (--worker)", "No such file"});
}

TEST_CASE("a database that can't be used stays as it is") {
  TempDir home;
  write_scale_kernel(home.path());
  const auto untouched = [&](const std::string& file, std::initializer_list<const char*> parts) {
    const std::string before = sha256_hex(content(file));
    for (const std::string command : {"compile scale.toml --arch sm_90 --problem T=half,n=4096", "list", "show 00"}) {
      const ProgramResult result = prewarm(home.path(), command + " --database '" + file + "'", kNoGpu);
      CAPTURE(command);
      INFO(result.err);
      CHECK(result.exit_code == 5);
      CHECK(contains(result.err, file));
      for (const std::string part : parts) {
        CAPTURE(part);
        CHECK(contains(result.err, part));
      }
      CHECK(result.out.empty());
    }
    CHECK(sha256_hex(content(file)) == before);
    const ProgramResult doctor = prewarm(home.path(), "doctor --database '" + file + "'", kNoGpu);
    CHECK(doctor.exit_code == 5);
    CHECK(contains(doctor.out, file));
    CHECK(sha256_hex(content(file)) == before);
  };
  SUBCASE("someone else's") {
    query(home / "theirs.db", "create table a(b); insert into a values(1)");
    untouched(home / "theirs.db", {});
  }
  SUBCASE("no database at all") {
    write_file(home / "notes.txt", std::string(5000, 'x'));
    untouched(home / "notes.txt", {});
  }
  SUBCASE("of a newer jitune") {
    {
      auto store = store::Store::open({.path = home / "newer.db", .must_be_file = true});
      REQUIRE(store);
    }
    // One that only this and later versions may even read.
    query(home / "newer.db", "pragma user_version=999; update meta set value=999 where name='min_reader_version'");
    untouched(home / "newer.db", {"newer"});
  }
}

TEST_CASE("a newer database that can still be read is read and not written") {
  TempDir home;
  write_scale_kernel(home.path());
  {
    auto store = store::Store::open({.path = home / "x.db", .must_be_file = true});
    REQUIRE(store);
  }
  query(home / "x.db", "pragma user_version=999");
  const std::string before = sha256_hex(content(home / "x.db"));
  CHECK(prewarm(home.path(), "list --database x.db", kNoGpu).exit_code == 0);
  const ProgramResult written =
      prewarm(home.path(), "compile scale.toml --arch sm_90 --problem T=half,n=4096 --database x.db", kNoGpu);
  CHECK(written.exit_code == 5);
  CHECK(contains(written.err, "newer jitune"));
  const ProgramResult doctor = prewarm(home.path(), "doctor --database x.db", kNoGpu);
  CHECK(doctor.exit_code == 5);
  CHECK(contains(doctor.out, "newer jitune"));
  CHECK(sha256_hex(content(home / "x.db")) == before);
}

TEST_CASE("reading commands make no database") {
  TempDir home;
  refused(home.path(), "list --database x.db", 5, {"there is no database at", "x.db", "jit-prewarm tune"});
  refused(home.path(), "show 12 --database x.db", 5, {"there is no database at"});
  const ProgramResult doctor = prewarm(home.path(), "doctor --database x.db", kNoGpu);
  CHECK(contains(doctor.out, "is not there yet"));
  CHECK_FALSE(exists(home / "x.db"));
}

TEST_CASE("an empty database lists nothing, and keys are looked at before they are looked up") {
  TempDir home;
  {
    auto store = store::Store::open({.path = home / "x.db", .must_be_file = true});
    REQUIRE(store);
  }
  const ProgramResult list = prewarm(home.path(), "list --database x.db");
  CHECK(list.exit_code == 0);
  CHECK(contains(list.out, "nothing is tuned yet"));
  const ProgramResult json = prewarm(home.path(), "list --json --database x.db");
  CHECK(contains(json.out, "\"keys\": []"));
  const ProgramResult none = prewarm(home.path(), "show 00 --database x.db");
  CHECK(none.exit_code == 2);
  CHECK(contains(none.err, "no key in"));
  const ProgramResult wrong = prewarm(home.path(), "show gemm --database x.db");
  CHECK(wrong.exit_code == 2);
  CHECK(contains(wrong.err, "'gemm' is not the beginning of a key"));
}

TEST_CASE("doctor names what is missing with its remedy") {
  TempDir home;
  const ProgramResult text = prewarm(home.path(), "doctor --nvrtc /nowhere/libnvrtc.so --worker /nowhere/w", kNoGpu);
  CHECK(text.exit_code == 4);
  CHECK(contains(text.out, "missing  GPU"));
  CHECK(contains(text.out, "missing  NVRTC"));
  CHECK(contains(text.out, "JITUNE_NVRTC"));
  CHECK(contains(text.out, "/nowhere/libnvrtc.so"));
  CHECK(contains(text.out, "missing  worker"));
  CHECK(contains(text.out, "/nowhere/w"));
  CHECK(contains(text.out, "cache/jitune/jitune.db"));
  const ProgramResult json = prewarm(home.path(), "doctor --json --nvrtc /nowhere/libnvrtc.so", kNoGpu);
  const Json report = Json::parse(json.out);
  CHECK(json.exit_code == 4);
  CHECK(report.at("exit_code") == 4);
  CHECK(report.at("missing") == Json{"gpu", "nvrtc"});
  CHECK(report.at("worker").at("version") == "jitune-worker " JITUNE_VERSION);
  CHECK_FALSE(exists(home / "cache"));
}

TEST_CASE("help names every command and exit code") {
  TempDir home;
  const ProgramResult help = prewarm(home.path(), "--help");
  CHECK(help.exit_code == 0);
  for (const char* part : {"tune ", "compile ", "space ", "list ", "show ", "doctor ", "Exit codes:", "  0 ", "  6 ",
                           "  130 ", "JITUNE_DATABASE"})
    CHECK(contains(help.out, part));
  for (const std::string command : {"tune", "compile", "space", "list", "show", "doctor"}) {
    const ProgramResult one = prewarm(home.path(), command + " --help");
    CAPTURE(command);
    CHECK(one.exit_code == 0);
    CHECK(contains(one.out, "Usage: jit-prewarm " + command));
    CHECK(contains(one.out, "--json"));
  }
  const ProgramResult nothing = prewarm(home.path(), "");
  CHECK(nothing.exit_code == 2);
  CHECK(contains(nothing.err, "Commands:"));
  CHECK(prewarm(home.path(), "--version").out == "jit-prewarm " JITUNE_VERSION "\n");
}
