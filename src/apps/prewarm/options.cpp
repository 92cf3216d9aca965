#include "apps/prewarm/options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>

#include "apps/prewarm/options_exchange.hpp"
#include "apps/prewarm/text.hpp"
#include "search/strategy.hpp"
#include "space/names.hpp"

namespace jitune::prewarm {
namespace {

constexpr const char* kAbout =
    "jit-prewarm tunes CUDA kernels ahead of time: it compiles the configs of a kernel file in parallel,\n"
    "times them on the GPU, and stores the winners for programs that use jitune.";

constexpr const char* kEnvironment =
    "Environment (options win over it):\n"
    "  JITUNE_DATABASE         path of the database\n"
    "  JITUNE_NVRTC            path of libnvrtc.so\n"
    "  JITUNE_WORKER           path of jitune-worker\n"
    "  JITUNE_COMPILE_WORKERS  compilers at a time\n"
    "  JITUNE_RUNTIME_DIR      folder where processes share compile slots; off: not shared\n"
    "  JITUNE_MEASURE          how times are taken: cold or hot, auto, stream, graph or cupti, unchecked\n"
    "  JITUNE_LOG              off, warn (default), info, debug or key; to stderr\n";

constexpr const char* kWhichKernel = "which kernel? Give at least one definition file, rmsnorm.toml for instance";

constexpr uint64_t kMaxSeed = INT64_MAX;  // what the database holds

constexpr const char* kTuneExamples =
    "Examples:\n"
    "  jit-prewarm tune rmsnorm.toml --problem T=half,rows=4096,hidden=8192\n"
    "  jit-prewarm tune kernels/*.toml --problems shapes.csv --budget 30s --database engine.db\n"
    "  jit-prewarm tune --from-misses --database engine.db --budget 1m\n\n"
    "shapes.csv holds a header row with the names of the problem values, then one problem a row. A problem is for\n"
    "every kernel that has exactly its names. A tuned problem is left as it is unless --force is given, or its kernel\n"
    "has other configs now: then only those are tried, and the best ones again. ^C ends after\n"
    "the trial that is running; every trial is stored as soon as it is known, so the same command goes on from "
    "there.\n";

constexpr const char* kCompileExamples =
    "Examples:\n"
    "  jit-prewarm compile gemm.toml --arch sm_90 --problem T=half,M=4096,N=4096,K=4096\n"
    "  jit-prewarm compile kernels/*.toml --problems shapes.csv --defaults-only\n\n"
    "No GPU is needed. With --arch, sizes of that GPU are NVIDIA's published ones. What is compiled once is not "
    "compiled\n"
    "again: tune finds it in the database.\n";

constexpr const char* kSpaceExamples =
    "Examples:\n"
    "  jit-prewarm space gemm.toml --arch sm_90 --problem T=half,M=4096,N=4096,K=4096\n\n"
    "Counts the configs, says what each constraint rejects, shows the default config with its launch, and some "
    "samples.\n"
    "A point that several constraints reject is counted with one of them. Compiles and stores nothing.\n";

constexpr const char* kShowExamples =
    "Examples:\n"
    "  jit-prewarm show 3f9a\n\n"
    "KEY is the beginning of a key as `list` prints it, as long as no other key begins like it.\n";

constexpr const char* kReplayExamples =
    "Examples:\n"
    "  jit-prewarm replay measured.csv.gz --strategy hls --budget 200 --seeds 100\n"
    "  jit-prewarm replay --from-database 3f9a --database engine.db --batch 8\n\n"
    "Runs a search on configs that were all measured before: no GPU, no compiler. FILE is a replay-csv-1 file, a "
    "Kernel\n"
    "Tuner cache, a T4 result file or a KTT result file, as it is or compressed with gzip. f(n) is the optimum over "
    "the\n"
    "best of the first n evaluations, failing ones included.\n";

constexpr const char* kDumpExamples =
    "Examples:\n"
    "  jit-prewarm dump 3f9a --output /tmp/rmsnorm\n\n"
    "SASS needs nvdisasm of the CUDA Toolkit, in CUDA_HOME/bin, /usr/local/cuda/bin or PATH.\n";

std::string exit_code_text() {
  std::string text = "Exit codes:\n";
  for (const ExitText& row : kExitTexts) {
    const std::string number = std::to_string(static_cast<int>(row.code));
    text += "  " + number + std::string(5 - number.size(), ' ') + row.meaning + "\n";
  }
  return text;
}

/// Help without CLI11's capitals and type decorations: `--database PATH   text`.
class Formatter : public CLI::Formatter {
 public:
  Formatter() { column_width(26); }
  std::string make_help(const CLI::App* app, std::string, CLI::AppFormatMode) const override {
    const std::string about = app->get_description();
    std::string text =
        about + (app->get_parent() == nullptr || about.ends_with("?") ? "" : ".") + "\n\nUsage: jit-prewarm ";
    if (app->get_parent() == nullptr) return text + "COMMAND [options]\n" + commands(app) + "\n" + app->get_footer();
    text += app->get_name();
    for (const CLI::Option* option : app->get_options())
      if (option->get_positional()) text += " " + option->get_option_text();
    text += " [options]\n\nOptions:\n";
    for (const CLI::Option* option : app->get_options())
      if (!option->get_positional()) text += make_option(option, false);
    return text + (app->get_footer().empty() ? "" : "\n" + app->get_footer());
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_option_text().empty() ? "" : " " + option->get_option_text();
  }

 private:
  static std::string commands(const CLI::App* app) {
    std::string text = "       jit-prewarm COMMAND --help\n\nCommands:\n";
    for (const CLI::App* sub : app->get_subcommands(nullptr)) {
      const std::string& name = sub->get_name();
      text += "  " + name + std::string(10 - name.size(), ' ') + sub->get_description() + "\n";
    }
    return text;
  }
};

/// What is wrong with a path that a shell left as it was: `--database "$UNSET"`, `--database=~/x.db`.
std::string named_path(const std::string& path) {
  if (path.empty()) return "the path is empty; leave the option out for the default, or name a file";
  if (path.starts_with("~/")) return "the shell did not replace ~ in '" + path + "'; write $HOME" + path.substr(1);
  return "";
}

/// Options that several commands share, each spelled and explained once.
struct Shared {
  CLI::App* app;
  Options& options;

  void kernels(bool required = true) const {
    app->add_option("files", options.files, "Kernel definitions (TOML)")->option_text("FILE...")->required(required);
    app->add_option("--kernel", options.kernel, "Only the kernel of this name")->option_text("NAME");
    app->add_option("--problem", options.problems, "A problem, T=half,rows=4096,hidden=8192 for instance; repeatable")
        ->option_text("VALUES")
        ->allow_extra_args(false);
    app->add_option("--problems", options.problem_table, "Problems from a CSV file, the header row holds the names")
        ->option_text("CSV");
  }
  void database() const {
    app->add_option("--database", options.database,
                    "The database (default: JITUNE_DATABASE, else ~/.cache/jitune/jitune.db)")
        ->option_text("PATH")
        ->check(named_path);
  }
  void device() const {
    app->add_option("--device", options.device, "The GPU, by index or UUID (default: the first)")
        ->option_text("INDEX|UUID");
  }
  void devices() const {
    app->add_option("--device", options.device,
                    "The GPU, by index or UUID (default: the first); several of one class (0,1), or all of the first "
                    "one's, share the trials")
        ->option_text("INDEX|UUID,...|all");
  }
  void arch(bool several) const {
    app->add_option("--arch", options.archs,
                    several ? "For these architectures, sm_80,sm_90 for instance (default: the GPU's)"
                            : "For this architecture, sm_90 for instance (default: the GPU's)")
        ->option_text(several ? "SM,..." : "SM")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->expected(1, several ? 64 : 1)
        ->excludes(app->get_option("--device"));
  }
  void tools() const {
    app->add_option("--jobs,--compile-workers", options.compile_workers,
                    "Compilers at a time (default: nine tenths of the cores)")
        ->option_text("N")
        ->check(CLI::Range(1, 1024));
    app->add_option("--nvrtc", options.nvrtc, "libnvrtc.so to compile with (default: the newest found)")
        ->option_text("PATH");
    worker();
  }
  void worker() const {
    app->add_option("--worker", options.worker, "jitune-worker (default: beside jit-prewarm)")->option_text("PATH");
  }
  void duration(const std::string& name, std::chrono::milliseconds& target, const std::string& text) const {
    app->add_option_function<std::string>(
           name,
           [name, &target](const std::string& value) {
             Result<std::chrono::milliseconds> duration = parse_duration(value);
             if (!duration) throw CLI::ValidationError(name, duration.error());
             target = *duration;
           },
           text)
        ->option_text("TIME");
  }
  void strategy() const {
    app->add_option("--strategy", options.strategy,
                    "auto, exhaustive, random, hls, annealing, genetic, bayes or coordinate (default: auto)")
        ->option_text("NAME")
        ->check(CLI::IsMember(search::strategy_names()));
    if (const char* path = std::getenv("JITUNE_XGBOOST")) options.xgboost = path;
    app->add_option(
           "--surrogate", options.surrogate,
           "What models times for strategies that learn: forest (built in, default) or xgboost (libxgboost.so; "
           "JITUNE_XGBOOST names it)")
        ->option_text("NAME")
        ->check(CLI::IsMember({"forest", "xgboost"}));
  }
  void json() const { app->add_flag("--json", options.json, "The result as one JSON document on stdout"); }
};

Shared add_command(CLI::App& app, Options& options, Options::Command command, const char* name, const char* text,
                   const char* footer) {
  CLI::App* sub = app.add_subcommand(name, text);
  sub->footer(footer);
  sub->callback([&options, command] { options.command = command; });
  return {sub, options};
}

void add_tune(CLI::App& app, Options& options) {
  const Shared shared =
      add_command(app, options, Options::Command::tune, "tune",
                  "Find and store the fastest config of each kernel and problem, on this GPU", kTuneExamples);
  shared.kernels(false);
  shared.app->add_flag("--from-misses", options.from_misses,
                       "No files: what launches on this GPU found no winner for, most wanted first");
  shared.app
      ->add_option("--capture", options.captures, "No files: launches that JITUNE_CAPTURE stored, with their data")
      ->option_text("FILE ...");
  shared.devices();
  shared.database();
  shared.duration("--budget", options.budget, "At most this long a problem, 30s or 2m (default: until all is tried)");
  shared.duration("--compile-timeout", options.compile_timeout,
                  "The longest that one config may compile (default: 60s)");
  shared.strategy();
  shared.app
      ->add_option("--strategy-command", options.strategy_command,
                   "A program of your own that proposes configs: JSON lines on stdin and stdout")
      ->option_text("COMMAND")
      ->check([](const std::string& command) { return command.empty() ? "the command is empty" : ""; })
      ->excludes(shared.app->get_option("--strategy"));
  shared.app->add_option("--trials", options.trials, "At most this many trials a problem (default: no bound)")
      ->option_text("N")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 40));
  shared.app
      ->add_option("--patience", options.patience,
                   "End when this many trials brought less than --improvement (default: no bound)")
      ->option_text("N")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 40));
  shared.app->add_option("--improvement", options.improvement, "For --patience, in percent (default: 1)")
      ->option_text("PERCENT")
      ->check(CLI::Range(0.0, 100.0));
  shared.app->add_flag("--force", options.force, "Tune again what is tuned already");
  shared.app->add_flag("--measure-all", options.measure_all,
                       "Run also configs that spill registers or fill little of an SM, where others like them lost");
  shared.app->add_option("--seed", options.seed, "Of the order of trials and the random inputs (default: 1)")
      ->option_text("N")
      ->check(CLI::Range(uint64_t{0}, kMaxSeed));
  shared.app
      ->add_option_function<std::string>(
          "--l2", [&options](const std::string& word) { options.hot_l2 = word == "hot"; },
          "Whether a launch finds its data in L2: cold or hot (default: JITUNE_MEASURE, else cold)")
      ->option_text("cold|hot")
      ->check(CLI::IsMember({"cold", "hot"}));
  shared.app
      ->add_option("--method", options.method,
                   "Time single launches (stream), graphs of them (graph), or by the default config's time (auto, "
                   "default); cupti: "
                   "by the GPU's own records of single launches, with the toolkit's libcupti")
      ->option_text("auto|stream|graph|cupti")
      ->check(CLI::IsMember({"auto", "stream", "graph", "cupti"}));
  shared.duration("--fixed-time", options.fixed_time,
                  "Sample every config for so long, 125ms for instance (default: 3 to 7 samples, early stop)");
  shared.app->add_flag("--skip-check", options.skip_check,
                       "Do not compare outputs; recorded with the result, which checked tuning does not use");
  shared.app->add_flag("--default-reference", options.default_reference,
                       "Check against the default config where the reference is a function of the program that "
                       "launches the kernel");
  shared.tools();
  shared.json();
}

void add_compile(CLI::App& app, Options& options) {
  const Shared shared = add_command(app, options, Options::Command::compile, "compile",
                                    "Compile every config into the database; needs no GPU", kCompileExamples);
  shared.kernels();
  shared.device();
  shared.arch(true);
  shared.database();
  shared.app->add_flag("--defaults-only", options.defaults_only, "Only the default config of each problem");
  shared.app->add_option("--limit", options.limit, "At most this many configs a problem")
      ->option_text("N")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 40));
  shared.duration("--compile-timeout", options.compile_timeout,
                  "The longest that one config may compile (default: 60s)");
  shared.tools();
  shared.json();
}

void add_others(CLI::App& app, Options& options) {
  const Shared space =
      add_command(app, options, Options::Command::space, "space",
                  "Count and sample a kernel's configs, say what each constraint rejects", kSpaceExamples);
  space.kernels();
  space.device();
  space.arch(false);
  space.app->add_option("--samples", options.samples, "How many configs to show (default: 5)")
      ->option_text("N")
      ->check(CLI::Range(uint64_t{0}, uint64_t{100000}));
  space.app->add_option("--seed", options.seed, "Of the samples (default: 1)")
      ->option_text("N")
      ->check(CLI::Range(uint64_t{0}, kMaxSeed));
  space.json();

  const Shared list = add_command(app, options, Options::Command::list, "list",
                                  "List what is in the database, a line for each key", "");
  list.app->add_option("--kernel", options.kernel, "Only the kernel of this name")->option_text("NAME");
  list.database();
  list.json();

  const Shared show = add_command(app, options, Options::Command::show, "show",
                                  "Show a key's fields, its winner and all its trials", kShowExamples);
  show.app->add_option("key", options.key, "The beginning of a key")->option_text("KEY")->required();
  show.database();
  show.json();

  const Shared dump = add_command(
      app, options, Options::Command::dump, "dump",
      "Write a key's source, the winner's cubin and its SASS to files, and say how to profile it", kDumpExamples);
  dump.app->add_option("key", options.key, "The beginning of a key")->option_text("KEY")->required();
  dump.app->add_option("--output", options.output, "The directory to write to (default: jitune-KEY)")
      ->option_text("DIR");
  dump.database();
  dump.json();

  const Shared replay = add_command(app, options, Options::Command::replay, "replay",
                                    "Try a search strategy on configs that were measured before", kReplayExamples);
  replay.app->add_option("files", options.files, "Recordings")->option_text("[FILE...]");
  replay.app->add_option("--from-database", options.from_database, "The trials of the key that begins so")
      ->option_text("KEY");
  replay.database();
  replay.strategy();
  replay.app->add_option("--budget", options.trials, "Evaluations of a run (default: 200)")
      ->option_text("N")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1'000'000}));
  replay.app->add_option("--seeds", options.seeds, "Runs, with the seeds 1, 2, ... (default: 20)")
      ->option_text("S")
      ->check(CLI::Range(uint64_t{1}, uint64_t{100'000}));
  replay.app->add_option("--batch", options.batch, "Configs asked for at a time (default: 1)")
      ->option_text("B")
      ->check(CLI::Range(uint64_t{1}, uint64_t{4096}));
  replay.app->add_option("--noise", options.noise, "Noise of each time that the search sees, in percent (default: 0)")
      ->option_text("PERCENT")
      ->check(CLI::Range(0.0, 100.0));
  replay.app->add_option("--export", options.export_path, "Write the (one) recording as replay-csv-1 instead")
      ->option_text("PATH");
  replay.json();

  const Shared doctor = add_command(app, options, Options::Command::doctor, "doctor",
                                    "Say what was found on this machine, and for each missing thing the remedy", "");
  doctor.database();
  doctor.tools();
  doctor.json();
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands(nullptr)) names.push_back(sub->get_name());
  return names;
}

/// An argument that no option and no place wants: a mistyped option, most of the time.
std::string explain_extra(const CLI::App& place, const std::vector<std::string>& extra) {
  const auto is_option = [](const std::string& text) { return text.size() > 1 && text[0] == '-'; };
  const auto option = std::find_if(extra.begin(), extra.end(), is_option);
  if (option == extra.end()) return "'" + (extra.empty() ? "" : extra[0]) + "' is one argument too many";
  std::vector<std::string> known;
  for (const CLI::Option* each : place.get_options()) known.push_back(each->get_name());
  const std::string name = option->substr(0, option->find('='));
  return "there is no option '" + name + "'" + space::did_you_mean(name, known);
}

/// What a command lacks; but a mistyped option is told first, since it may be what is missing.
std::string explain_missing(const CLI::App& place, const std::string& text) {
  for (const std::string& extra : place.remaining())
    if (extra.size() > 1 && extra[0] == '-') return explain_extra(place, {extra});
  if (place.get_option_no_throw("key") != nullptr)
    return "which key? Give the beginning of one that `jit-prewarm list` prints";
  if (text.find("--baseline") != std::string::npos)
    return "what is to be checked? Give stored winners with --baseline, a database, JSON or a table";
  if (text.find("--output") != std::string::npos) return "where to? --output all.db for instance";
  if (place.get_name() == "import" || place.get_name() == "merge")
    return "which file? Give at least one that `jit-prewarm export` wrote" +
           std::string(place.get_name() == "import" ? ", or results of another tuner" : "");
  return kWhichKernel;
}

/// One sentence for a command line that can't be understood, with the remedy.
std::string explain(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  const std::string first = argc > 1 ? argv[1] : "";
  if (chosen.empty() && !first.empty() && first[0] != '-') {
    const std::vector<std::string> names = command_names(app);
    return "there is no command '" + first + "'" + space::did_you_mean(first, names) + "; the commands are " +
           join_words(names);
  }
  const CLI::App& place = chosen.empty() ? app : *chosen[0];
  const std::string help = chosen.empty() ? "jit-prewarm --help" : "jit-prewarm " + place.get_name() + " --help";
  std::string text = chosen.empty() ? "which command? " + join_words(command_names(app)) : error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    std::vector<std::string> extra = place.remaining();
    if (extra.empty()) extra = app.remaining();
    text = explain_extra(place, extra);
  } else if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && !chosen.empty()) {
    text = explain_missing(place, text);
  }
  return text + "\n(" + help + " lists the options)";
}

}  // namespace

CLI::App* add_shared_command(CLI::App& app, Options& options, const SharedCommand& what) {
  const Shared shared = add_command(app, options, what.command, what.name, what.text, what.footer);
  if (what.kernels) shared.kernels();
  if (what.device || what.arch) shared.device();
  if (what.arch) shared.arch(false);
  shared.database();
  if (what.tools) shared.tools();
  shared.json();
  return shared.app;
}

Options parse_command_line(int argc, char** argv) {
  Options options;
  CLI::App app(kAbout, "jit-prewarm");
  app.formatter(std::make_shared<Formatter>());
  app.set_help_flag("-h,--help", "This text");
  app.set_version_flag("--version", "jit-prewarm " JITUNE_VERSION, "The version");
  app.require_subcommand(1);
  app.footer(exit_code_text() + "\n" + kEnvironment);
  add_tune(app, options);
  add_compile(app, options);
  add_others(app, options);
  add_exchange(app, options);
  if (argc <= 1) throw Stop(Exit::usage, app.help());
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version: app.exit prints the right one of them
    app.exit(success, std::cout, std::cerr);
    throw Stop(Exit::ok, "");
  } catch (const CLI::ParseError& error) {
    throw Stop(Exit::usage, explain(app, error, argc, argv));
  }
  const bool from_database = options.from_misses;
  if (options.command == Options::Command::tune && options.files.empty() && !from_database && options.captures.empty())
    throw Stop(Exit::usage, std::string(kWhichKernel) + "\n(jit-prewarm tune --help lists the options)");
  if (from_database && (!options.files.empty() || !options.problems.empty() || !options.problem_table.empty()))
    throw Stop(Exit::usage,
               "--from-misses takes kernels and problems from the database; give no files and no "
               "problems with them");
  if (!options.captures.empty() &&
      (from_database || !options.files.empty() || !options.problems.empty() || !options.problem_table.empty()))
    throw Stop(Exit::usage,
               "--capture takes kernels and problems from its files; give no other files, no problems and no "
               "--from-misses with it");
  return options;
}

}  // namespace jitune::prewarm
