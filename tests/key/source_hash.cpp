#include <doctest/doctest.h>

#include <filesystem>

#include "base/files.hpp"
#include "base/hash.hpp"
#include "key/key.hpp"
#include "support/support.hpp"

using namespace jitune;
namespace fs = std::filesystem;

namespace {

/// A source with two include directories, one header beside it, a diamond and a cycle.
struct Tree {
  explicit Tree(const std::string& root) : root(root) {
    test::write_file(root + "/src/near.h", "#include \"sub/nearer.h\"\n");
    test::write_file(root + "/src/sub/nearer.h", "#include \"../near.h\"\nint nearer;\n");
    test::write_file(root + "/inc/a.h", "#pragma once\n#include \"common.h\"\n");
    test::write_file(root + "/inc/b.h", "#include <common.h>\n#include <far.h>\n");
    test::write_file(root + "/inc/common.h", "int common;\n");
    test::write_file(root + "/inc2/far.h", "int far;\n");
    test::write_file(root + "/inc2/a.h", "shadowed by inc/a.h\n");
    test::write_file(root + "/inc/unreached.h", "int unreached;\n");
  }

  key::SourceHash hash() const {
    Result<key::SourceHash> hash = key::hash_source(text, root + "/src", {root + "/inc", root + "/inc2"});
    REQUIRE_MESSAGE(hash.ok(), (hash.ok() ? "" : hash.error()));
    return *hash;
  }

  std::string root;
  std::string text =
      "#include <cuda_fp16.h>\n#include \"near.h\"\n#include <a.h>\n#include <b.h>\n#if 0\n#include <never.h>\n#endif\n"
      "#include <cuda_fp16.h>\n#include CHOSEN\n";
};

std::vector<std::string> names(const key::SourceHash& hash, const std::string& root) {
  std::vector<std::string> names;
  for (const key::Header& header : hash.headers)
    names.push_back(fs::path(header.path).lexically_normal().string().substr(root.size() + 1));
  return names;
}

}  // namespace

TEST_CASE("headers are found as NVRTC finds them, each once, in order") {
  test::TempDir dir;
  const Tree tree(dir.path());
  const key::SourceHash hash = tree.hash();
  CHECK(names(hash, dir.path()) ==
        std::vector<std::string>{"src/near.h", "src/sub/nearer.h", "inc/a.h", "inc/common.h", "inc/b.h", "inc2/far.h"});
  CHECK(hash.unresolved == std::vector<std::string>{"cuda_fp16.h", "never.h", "CHOSEN"});
  CHECK(hash.headers[3].sha256 == sha256_hex("int common;\n"));
  CHECK(hash.sha256.size() == 64);
}

TEST_CASE("the same tree elsewhere has the same hash") {
  test::TempDir here, there;
  CHECK(Tree(here.path()).hash().sha256 == Tree(there / "deep/er").hash().sha256);
  // And from a working directory, with relative paths.
  const fs::path before = fs::current_path();
  fs::current_path(here.path());
  const Tree tree(here.path());
  Result<key::SourceHash> relative = key::hash_source(tree.text, "src", {"inc", "./inc2"});
  fs::current_path(before);
  REQUIRE(relative.ok());
  CHECK(relative->sha256 == tree.hash().sha256);
}

TEST_CASE("what is reachable changes the hash, what is not does not") {
  test::TempDir dir;
  const Tree tree(dir.path());
  const std::string before = tree.hash().sha256;
  const auto after = [&](const std::string& file, const std::string& text) {
    const Result<std::string> old = read_file(dir / file);
    test::write_file(dir / file, text);
    const std::string changed = tree.hash().sha256;
    if (old.ok())
      test::write_file(dir / file, *old);
    else
      fs::remove(dir / file);
    CHECK(tree.hash().sha256 == before);
    return changed;
  };
  CHECK(after("inc/common.h", "int common; \n") != before);
  CHECK(after("inc/common.h", "int common;\r\n") != before);
  CHECK(after("inc/common.h", "\xEF\xBB\xBFint common;\n") != before);
  CHECK(after("inc2/far.h", "int farther;\n") != before);
  CHECK(after("src/sub/nearer.h", "int nearer;\n") != before);
  CHECK(after("inc/never.h", "") != before);          // appears where it was looked for
  CHECK(after("src/a.h", "int a;\n") == before);      // <a.h> is not looked for beside the source
  CHECK(after("inc/far.h", "int far;\n") == before);  // the same bytes, found earlier
  CHECK(after("inc/far.h", "int nearer;\n") != before);
  CHECK(after("inc/unreached.h", "changed\n") == before);
  CHECK(after("inc2/a.h", "changed\n") == before);
  Tree other = tree;
  other.text += " ";
  CHECK(other.hash().sha256 != before);
}

TEST_CASE("which name leads to which text is in the hash") {
  test::TempDir dir;
  const std::string text = "#include <a.h>\n#include <b.h>\n";
  const auto hash = [&](const char* a, const char* b) {
    fs::remove_all(dir / "inc");
    if (a != nullptr) test::write_file(dir / "inc/a.h", a);
    if (b != nullptr) test::write_file(dir / "inc/b.h", b);
    return key::hash_source(text, dir.path(), {dir / "inc"})->sha256;
  };
  const std::vector<std::string> all{hash("1", "2"),         hash("2", "1"), hash("1", nullptr), hash(nullptr, "1"),
                                     hash(nullptr, nullptr), hash("12", ""), hash("", "12"),     hash("1", "1")};
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t j = i + 1; j < all.size(); ++j) CHECK(all[i] != all[j]);
}

TEST_CASE("quoted names are looked for beside the includer, then in the directories; angled ones only there") {
  test::TempDir dir;
  test::write_file(dir / "inc/deep/x.h", "#include \"y.h\"\n");
  test::write_file(dir / "inc/deep/y.h", "deep\n");
  test::write_file(dir / "inc/y.h", "shallow\n");
  auto hash = key::hash_source("#include <deep/x.h>\n", dir / "nowhere", {dir / "inc"});
  REQUIRE(hash.ok());
  REQUIRE(hash->headers.size() == 2);
  CHECK(hash->headers[1].sha256 == sha256_hex("deep\n"));
  test::write_file(dir / "inc/deep/x.h", "#include <y.h>\n");
  hash = key::hash_source("#include <deep/x.h>\n", dir / "nowhere", {dir / "inc"});
  REQUIRE(hash->headers.size() == 2);
  CHECK(hash->headers[1].sha256 == sha256_hex("shallow\n"));
  hash = key::hash_source("#include <y.h>\n", dir / "inc", {});
  CHECK(hash->headers.empty());
  CHECK(hash->unresolved == std::vector<std::string>{"y.h"});
  // include_next goes on behind the directory in which the includer was found.
  test::write_file(dir / "inc/z.h", "#include_next <z.h>\n");
  test::write_file(dir / "inc2/z.h", "second\n");
  hash = key::hash_source("#include <z.h>\n", dir.path(), {dir / "inc", dir / "inc2"});
  REQUIRE(hash->headers.size() == 2);
  CHECK(hash->headers[1].sha256 == sha256_hex("second\n"));
}

TEST_CASE("the host's own headers are never found") {
  test::TempDir dir;
  auto hash = key::hash_source("#include <stdio.h>\n#include <vector>\n#include \"stdlib.h\"\n", dir.path(), {});
  REQUIRE(hash.ok());
  CHECK(hash->headers.empty());
  CHECK(hash->unresolved == std::vector<std::string>{"stdio.h", "vector", "stdlib.h"});
}

TEST_CASE("links, loops of links, directories and devices") {
  test::TempDir dir;
  test::write_file(dir / "inc/loop.h", "#include \"d/loop.h\"\n");
  fs::create_directory_symlink(".", dir / "inc/d");
  auto hash = key::hash_source("#include <loop.h>\n", dir.path(), {dir / "inc"});
  REQUIRE(hash.ok());
  CHECK(hash->headers.size() == 1);
  // A link is read, and what it quotes is looked for beside the link.
  test::write_file(dir / "real/a.h", "#include \"b.h\"\n");
  test::write_file(dir / "real/b.h", "real\n");
  test::write_file(dir / "inc/b.h", "beside the link\n");
  fs::create_symlink(dir / "real/a.h", dir / "inc/a.h");
  hash = key::hash_source("#include <a.h>\n", dir.path(), {dir / "inc"});
  REQUIRE(hash->headers.size() == 2);
  CHECK(hash->headers[1].sha256 == sha256_hex("beside the link\n"));
  hash = key::hash_source("#include <d>\n#include \"/dev/null\"\n", dir.path(), {dir / "inc"});
  REQUIRE(hash.ok());
  CHECK(hash->headers.empty());
  CHECK(hash->unresolved.size() == 2);
}

TEST_CASE("a header that is there but can't be read is a failure that names it") {
  test::TempDir dir;
  const auto hash = key::hash_source("#include \"/proc/self/mem\"\n", dir.path(), {});
  REQUIRE_FALSE(hash.ok());
  CHECK(hash.error().find("/proc/self/mem") != std::string::npos);
}

TEST_CASE("a tree without end is a failure, not a crash") {
  test::TempDir dir;
  for (int i = 0; i < 300; ++i)
    test::write_file(dir / ("inc/h" + std::to_string(i) + ".h"), "#include \"h" + std::to_string(i + 1) + ".h\"\n");
  const auto hash = key::hash_source("#include <h0.h>\n", dir.path(), {dir / "inc"});
  REQUIRE_FALSE(hash.ok());
  CHECK(hash.error().find("200 deep") != std::string::npos);
}

TEST_CASE("headers given as text count by content, where they are reached, and before files of their name") {
  test::TempDir dir;
  test::write_file(dir / "inc/tile.h", "int in_file;\n");
  const auto hash = [&](const std::vector<HeaderText>& headers) {
    const auto result =
        key::hash_source("#include \"tile.h\"\n#include <other.h>\n#include <tile.h>\n", "", {dir / "inc"}, headers);
    REQUIRE(result.ok());
    return *result;
  };
  const std::vector<HeaderText> headers{
      {"tile.h", "#include <deep/value.h>\n"}, {"deep/value.h", "int value;"}, {"unreached.h", "x"}};
  const key::SourceHash first = hash(headers);
  REQUIRE(first.headers.size() == 2);
  CHECK(first.headers[0].path == "tile.h");
  CHECK(first.headers[1].path == "deep/value.h");
  CHECK(first.unresolved == std::vector<std::string>{"other.h"});
  auto changed = headers;
  changed[2].text = "y";
  CHECK(hash(changed).sha256 == first.sha256);
  test::write_file(dir / "inc/tile.h", "int other;\n");
  CHECK(hash(headers).sha256 == first.sha256);
  changed[1].text = "int other;";
  CHECK(hash(changed).sha256 != first.sha256);
  std::swap(changed[0], changed[1]);
  changed[0].text = headers[1].text;
  CHECK(hash(changed).sha256 == first.sha256);  // the order of a list carries no meaning
  CHECK(hash({}).sha256 != first.sha256);
}
