#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/disk_cache.h"
#include "base/error.h"
#include "check.h"

namespace thunder {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "thunder_cache_XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void write(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

std::uint64_t bytes_in(const fs::path& folder) {
  std::uint64_t bytes = 0;
  for (const fs::directory_entry& file : fs::directory_iterator(folder)) bytes += file.file_size();
  return bytes;
}

constexpr std::uint64_t kMuch = 1 << 20;

}  // namespace

TEST(contents_are_found_by_their_key_in_every_process) {
  const Folder folder;
  DiskCache cache(folder.path() / "below" / "it", kMuch);
  CHECK(!cache.find("a"));
  cache.store("a", std::string("x\0y", 3));
  cache.store("b", "");
  const DiskCache other(folder.path() / "below" / "it", kMuch);
  CHECK(other.find("a") == std::string("x\0y", 3));
  CHECK(other.find("b") == "");
  CHECK(!other.find("c"));
  cache.store("a", "other");
  CHECK(cache.find("a") == "other");
}

TEST(damaged_files_are_not_found_and_written_anew) {
  const Folder folder;
  DiskCache cache(folder.path(), kMuch);
  cache.store("key", "content");
  const std::string text = read(cache.path_of("key"));
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 4);
    write(cache.path_of("key"), damaged);
    CHECK(!cache.find("key"));
    write(cache.path_of("key"), text.substr(0, i));
    CHECK(!cache.find("key"));
  }
  write(cache.path_of("key"), text + "more");
  CHECK(!cache.find("key"));
  cache.store("key", "content");
  CHECK(cache.find("key") == "content");
}

TEST(a_file_of_another_key_is_not_found) {
  const Folder folder;
  DiskCache cache(folder.path(), kMuch);
  cache.store("key", "content");
  fs::copy_file(cache.path_of("key"), cache.path_of("other"));
  CHECK(!cache.find("other"));
}

TEST(files_that_others_can_write_to_are_not_found) {
  const Folder folder;
  DiskCache cache(folder.path(), kMuch);
  cache.store("key", "content");
  const fs::path path = cache.path_of("key");
  CHECK_EQ(::chmod(path.c_str(), 0622), 0);
  CHECK(!cache.find("key"));
  CHECK_EQ(::chmod(path.c_str(), 0644), 0);
  CHECK(cache.find("key").has_value());
  fs::rename(path, folder.path() / "elsewhere");
  fs::create_symlink(folder.path() / "elsewhere", path);
  CHECK(!cache.find("key"));
}

TEST(a_folder_that_cannot_be_written_to_is_a_cache_without_contents) {
  const Folder folder;
  write(folder.path() / "file", "");
  DiskCache cache(folder.path() / "file" / "below", kMuch);
  cache.store("key", "content");
  CHECK(!cache.find("key"));
}

TEST(contents_that_were_used_longest_ago_make_room) {
  const Folder folder;
  const std::string content(1000, 'x');
  DiskCache cache(folder.path(), 10'000);
  const auto age = [&](const std::string& key, int hours) {
    fs::last_write_time(cache.path_of(key), fs::file_time_type::clock::now() - std::chrono::hours(hours));
  };
  for (int i = 0; i < 8; ++i) {
    cache.store(std::to_string(i), content);
    age(std::to_string(i), 20 - i);
  }
  CHECK(cache.find("0") == content);
  for (int i = 8; i < 12; ++i) cache.store(std::to_string(i), content);
  CHECK(bytes_in(folder.path()) <= 10'000);
  CHECK(cache.find("0") == content);
  CHECK(cache.find("11") == content);
  CHECK(!cache.find("1"));
  for (int i = 0; i < 100; ++i) {
    cache.store("more" + std::to_string(i), content);
    CHECK(bytes_in(folder.path()) <= 10'000);
  }
  cache.store("large", std::string(20'000, 'x'));
  CHECK(!cache.find("large"));
  CHECK(cache.find("more99") == content);
}

TEST(files_of_processes_that_ended_while_they_wrote_are_removed) {
  const Folder folder;
  const fs::path left = folder.path() / "0123.1.0.tmp";
  const fs::path fresh = folder.path() / "0123.2.0.tmp";
  write(left, "part");
  write(fresh, "part");
  fs::last_write_time(left, fs::file_time_type::clock::now() - std::chrono::hours(2));
  DiskCache(folder.path(), kMuch).store("key", "content");
  CHECK(!fs::exists(left));
  CHECK(fs::exists(fresh));
}

TEST(processes_write_and_read_one_folder) {
  const Folder folder;
  constexpr int kKeys = 20;
  const auto content = [](int i) { return std::string(5000, static_cast<char>('a' + i)); };
  std::vector<pid_t> children;
  for (int process = 0; process < 4; ++process) {
    const pid_t child = fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    bool is_right = true;
    DiskCache cache(folder.path(), 60'000);  // too little for all keys: others remove what is read
    for (int i = 0; i < 400; ++i) {
      const int key = (i * 7 + process) % kKeys;
      const auto found = cache.find(std::to_string(key));
      is_right = is_right && (!found || *found == content(key));
      if (!found) cache.store(std::to_string(key), content(key));
    }
    _exit(is_right ? 0 : 1);
  }
  for (const pid_t child : children) {
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
  }
  for (const fs::directory_entry& file : fs::directory_iterator(folder.path())) {
    CHECK(file.path().extension() != ".tmp");
  }
}

TEST(the_folder_and_size_follow_the_environment) {
  const auto set = [](const char* name, const char* value) {
    value == nullptr ? unsetenv(name) : setenv(name, value, 1);
  };
  set("THUNDER_CACHE_DIR", nullptr);
  set("XDG_CACHE_HOME", nullptr);
  set("HOME", "/home/u");
  CHECK_EQ(cache_folder("cuda").value().string(), "/home/u/.cache/thunder/cuda");
  set("XDG_CACHE_HOME", "relative");
  CHECK_EQ(cache_folder("cuda").value().string(), "/home/u/.cache/thunder/cuda");
  set("XDG_CACHE_HOME", "/caches");
  CHECK_EQ(cache_folder("cuda").value().string(), "/caches/thunder/cuda");
  set("THUNDER_CACHE_DIR", "/mine");
  CHECK_EQ(cache_folder("cuda").value().string(), "/mine/cuda");
  for (const char* name : {"THUNDER_CACHE_DIR", "XDG_CACHE_HOME", "HOME"}) set(name, nullptr);
  CHECK(!cache_folder("cuda"));
  set("THUNDER_CACHE_SIZE", nullptr);
  CHECK_EQ(cache_bytes(), std::uint64_t{1} << 30);
  set("THUNDER_CACHE_SIZE", "3");
  CHECK_EQ(cache_bytes(), std::uint64_t{3} << 20);
  set("THUNDER_CACHE_SIZE", "0");
  CHECK_EQ(cache_bytes(), 0U);
  for (const char* wrong : {"1GiB", "-1", "x", "99999999999999999999"}) {
    set("THUNDER_CACHE_SIZE", wrong);
    CHECK_THROWS(static_cast<void>(cache_bytes()), UserError);
  }
}

}  // namespace thunder
