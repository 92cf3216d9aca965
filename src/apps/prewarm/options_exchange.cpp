#include "apps/prewarm/options_exchange.hpp"

namespace jitune::prewarm {
namespace {

constexpr const char* kExportExamples =
    "Examples:\n"
    "  jit-prewarm export --output winners.db          a database to ship: one file, read-only, with cubins\n"
    "  jit-prewarm export --output winners/            JSON to review and commit, a file a problem and device\n"
    "  jit-prewarm export --output winners.csv         a table: shapes in, winners out\n"
    "  jit-prewarm export --format defaults --definition gemm.toml   rules for the kernel's own file\n\n"
    "Programs look into such files when they are named in Options::bundles or JITUNE_BUNDLES.\n";

constexpr const char* kImportExamples =
    "Examples:\n"
    "  jit-prewarm import winners.csv --definition gemm.toml\n"
    "  jit-prewarm import 'E=128,N=1024,device_name=NVIDIA_H200.json' --definition moe.toml --arch sm_90 \\\n"
    "      --problem T=bfloat16 --map BLOCK_SIZE_M=BM,BLOCK_SIZE_N=BN\n\n"
    "Takes what export writes, and answers of others: SGLang's fused-MoE configs, tuned tables as aiter's, Kernel "
    "Tuner\n"
    "caches and T4 results, KTT results. A winner takes the place of a stored one that it beats.\n";

constexpr const char* kMergeExamples =
    "Examples:\n"
    "  jit-prewarm merge rank0.db rank1.db winners.csv --output all.db\n\n"
    "Of each key the best winner stays: pinned ones first, then the fastest. The result does not depend on the order\n"
    "of the files.\n";

constexpr const char* kCheckExamples =
    "Examples:\n"
    "  jit-prewarm check kernels/*.toml --baseline winners.csv --lint-only\n"
    "  jit-prewarm check kernels/*.toml --baseline winners/ --tolerance 5\n\n"
    "Without a GPU: every key is that of today's kernel, none is there twice, winners and default configs are valid.\n"
    "With one, winners of its class are measured again beside their default config.\n";

constexpr const char* kWhyExamples =
    "Examples:\n"
    "  jit-prewarm why gemm.toml --problem T=half,M=4096,N=4096,K=4096\n";

constexpr const char* kGcExamples =
    "Examples:\n"
    "  jit-prewarm gc --max-size 200MiB\n\n"
    "Old studies, failures after 90 days and what nothing refers to go in any case; then cubins that no winner names,\n"
    "then whole keys, least recently used first. What is pinned stays.\n";

void add_definitions(CLI::App* app, Options& options) {
  app->add_option("--definition", options.definitions, "Kernels to hold winners against; repeatable")
      ->option_text("FILE")
      ->allow_extra_args(false);
}

void add_kernel(CLI::App* app, Options& options) {
  app->add_option("--kernel", options.kernel, "Only the kernel of this name")->option_text("NAME");
}

void add_format(CLI::App* app, Options& options, bool rules) {
  std::vector<std::string> words{"database", "json", "csv"};
  if (rules) words.emplace_back("defaults");
  app->add_option("--format", options.format, "Default: as the name of --output says")
      ->option_text(rules ? "database|json|csv|defaults" : "database|json|csv")
      ->check(CLI::IsMember(words));
}

void add_key(CLI::App* app, Options& options) {
  app->add_option("key", options.key, "The beginning of a key")->option_text("KEY")->required();
}

void add_moving(CLI::App& app, Options& options) {
  using Command = Options::Command;
  CLI::App* out = add_shared_command(
      app, options, {Command::export_, "export", "Write winners to a file to ship, review or commit", kExportExamples});
  out->add_option("--output", options.output, "Where to: .db, .csv, .json, or a folder of JSON files")
      ->option_text("PATH");
  add_format(out, options, true);
  add_kernel(out, options);
  out->add_option("--key", options.key, "Only keys that begin so")->option_text("KEY");
  out->add_flag("--without-cubins", options.without_cubins, "Configs alone: they are compiled where they are used");
  add_definitions(out, options);

  CLI::App* in = add_shared_command(app, options,
                                    {.command = Command::import,
                                     .name = "import",
                                     .text = "Take winners of files into the database, checked",
                                     .footer = kImportExamples,
                                     .arch = true});
  in->add_option("files", options.files, "Databases, JSON files or folders, tables")
      ->option_text("FILE...")
      ->required();
  add_definitions(in, options);
  add_kernel(in, options);
  in->add_option("--map", options.maps, "A name of theirs and what the kernel calls it; repeatable")
      ->option_text("THEIRS=OURS,...")
      ->delimiter(',')
      ->allow_extra_args(false);
  in->add_option("--problem", options.problems, "Problem values that the file does not say")
      ->option_text("VALUES")
      ->allow_extra_args(false);

  CLI::App* merge = add_shared_command(
      app, options, {Command::merge, "merge", "Make one file of several, the best winner of each key", kMergeExamples});
  merge->add_option("files", options.files, "What to merge: all that export writes")
      ->option_text("FILE...")
      ->required();
  merge->add_option("--output", options.output, "Where to")->option_text("PATH")->required();
  add_format(merge, options, false);
  merge->add_flag("--force", options.force, "Replace what is there");
}

void add_judging(CLI::App& app, Options& options) {
  using Command = Options::Command;
  CLI::App* check = add_shared_command(app, options,
                                       {.command = Command::check,
                                        .name = "check",
                                        .text = "For CI: are stored winners still right, and as fast as they were?",
                                        .footer = kCheckExamples,
                                        .device = true,
                                        .tools = true});
  check->add_option("files", options.definitions, "Kernel definitions (TOML)")->option_text("FILE...")->required();
  check->add_option("--baseline", options.baseline, "Winners: a database, JSON, a table")
      ->option_text("FILE")
      ->required();
  add_kernel(check, options);
  check->add_option("--tolerance", options.tolerance, "How much slower is a regression, in percent (default: 5)")
      ->option_text("PERCENT")
      ->check(CLI::Range(0.0, 1000.0));
  check->add_flag("--lint-only", options.lint_only, "Measure nothing");

  add_shared_command(app, options,
                     {.command = Command::why,
                      .name = "why",
                      .text = "Say whether a problem would be tuned again, and which part of its key differs",
                      .footer = kWhyExamples,
                      .kernels = true,
                      .arch = true,
                      .tools = true});
}

}  // namespace

void add_exchange(CLI::App& app, Options& options) {
  using Command = Options::Command;
  add_moving(app, options);
  add_judging(app, options);
  CLI::App* gc = add_shared_command(
      app, options, {Command::gc, "gc", "Make the database smaller: drop what was not used for longest", kGcExamples});
  gc->add_option("--max-size", options.max_bytes, "Cubins may take this much, 200MiB for instance (default: 1GiB)")
      ->option_text("SIZE")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::NonNegativeNumber);
  add_key(
      add_shared_command(app, options, {Command::pin, "pin", "Make a key's winner stay, whatever is tuned later", ""}),
      options);
  add_key(add_shared_command(app, options, {Command::unpin, "unpin", "Let a pinned winner be replaced again", ""}),
          options);
}

}  // namespace jitune::prewarm
