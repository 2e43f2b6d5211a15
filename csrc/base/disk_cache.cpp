#include "base/disk_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <system_error>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"

namespace thunder {
namespace {

namespace fs = std::filesystem;

// A file is: 8 bytes of the magic, 8 of the checksum of the rest, key, content.
constexpr std::string_view kMagic = "thundrk1";
constexpr std::size_t kHeaderBytes = 16;
constexpr std::string_view kTemporary = ".tmp";
/// A process that writes for so long has ended.
constexpr auto kLongestWrite = std::chrono::hours(1);
constexpr std::uint64_t kUsualBytes = std::uint64_t{1} << 30;

std::string file_text(std::string_view key, std::string_view content) {
  std::string payload;
  ByteWriter writer(payload);
  writer.write_text(key);
  writer.write_text(content);
  std::string text(kMagic);
  const std::uint64_t sum = checksum(payload);
  for (int shift = 0; shift < 64; shift += 8) text.push_back(static_cast<char>(sum >> shift));
  return text + payload;
}

/// The content, where the text is all of a file for that key.
std::optional<std::string> content_of(std::string_view text, std::string_view key) {
  if (text.size() < kHeaderBytes || !text.starts_with(kMagic)) return std::nullopt;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    sum |= std::uint64_t{static_cast<std::uint8_t>(text[kMagic.size() + i])} << (8 * i);
  }
  const std::string_view payload = text.substr(kHeaderBytes);
  if (checksum(payload) != sum) return std::nullopt;
  ByteReader reader(payload);
  if (reader.read_text() != key) return std::nullopt;
  return std::string(reader.read_text());
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return number_; }

 private:
  int number_;
};

/// Nobody else can write what this process will run: the file is this user's or the system's, and theirs alone.
bool is_trusted(const struct stat& status) {
  return S_ISREG(status.st_mode) && (status.st_uid == ::geteuid() || status.st_uid == 0) &&
         (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

std::optional<std::string> read_file(const fs::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat status{};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0 || !is_trusted(status)) return std::nullopt;
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::read(file.get(), text.data() + done, text.size() - done);
    if (count <= 0) return std::nullopt;
    done += static_cast<std::size_t>(count);
  }
  return text;
}

bool write_file(const fs::path& path, std::string_view text) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (file.get() < 0) return false;
  while (!text.empty()) {
    const ssize_t count = ::write(file.get(), text.data(), text.size());
    if (count <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

struct CacheFile {
  fs::path path;
  std::uint64_t bytes;
  fs::file_time_type used;
};

/// The files of the folder, those used longest ago first. What processes have left behind that ended while they wrote
/// is removed.
std::vector<CacheFile> files_of(const fs::path& folder) {
  std::vector<CacheFile> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code gone;  // by another process
    const fs::file_time_type used = entry->last_write_time(gone);
    const std::uint64_t bytes = gone ? 0 : entry->file_size(gone);
    if (gone) continue;
    if (entry->path().extension() != kTemporary) {
      files.push_back({entry->path(), bytes, used});
    } else if (used + kLongestWrite < fs::file_time_type::clock::now()) {
      fs::remove(entry->path(), gone);
    }
  }
  std::ranges::sort(files, {}, &CacheFile::used);
  return files;
}

}  // namespace

DiskCache::DiskCache(fs::path folder, std::uint64_t most_bytes) : folder_(std::move(folder)), most_bytes_(most_bytes) {}

fs::path DiskCache::path_of(std::string_view key) const {
  constexpr std::string_view kDigits = "0123456789abcdef";
  const std::uint64_t sum = checksum(key);
  std::string name;
  for (int shift = 60; shift >= 0; shift -= 4) name.push_back(kDigits[(sum >> shift) & 15]);
  return folder_ / name;
}

std::optional<std::string> DiskCache::find(std::string_view key) const {
  const fs::path path = path_of(key);
  const std::optional<std::string> text = read_file(path);
  if (!text) return std::nullopt;
  std::optional<std::string> content;
  try {
    content = content_of(*text, key);
  } catch (const InternalError&) {  // damaged
    return std::nullopt;
  }
  std::error_code error;
  if (content) fs::last_write_time(path, fs::file_time_type::clock::now(), error);
  return content;
}

void DiskCache::store(std::string_view key, std::string_view content) {
  static std::atomic<unsigned> number = 0;
  const std::string text = file_text(key, content);
  if (text.size() > most_bytes_) return;
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) return;
  make_room(text.size());
  const fs::path path = path_of(key);
  const fs::path temporary =
      path.string() + "." + std::to_string(::getpid()) + "." + std::to_string(number++) + std::string(kTemporary);
  if (write_file(temporary, text)) fs::rename(temporary, path, error);
  fs::remove(temporary, error);
}

void DiskCache::make_room(std::uint64_t bytes) {
  const std::scoped_lock lock(mutex_);
  if (bytes_left_.value_or(0) >= bytes) {
    *bytes_left_ -= bytes;
    return;
  }
  const std::vector<CacheFile> files = files_of(folder_);
  std::uint64_t all = bytes;
  for (const CacheFile& file : files) all += file.bytes;
  // Some more than is needed, so that few calls look through the folder.
  const std::uint64_t most = all > most_bytes_ ? std::max(bytes, most_bytes_ / 4 * 3) : most_bytes_;
  std::error_code error;
  for (auto file = files.begin(); file != files.end() && all > most; ++file) {
    fs::remove(file->path, error);
    all -= file->bytes;
  }
  // Others write, too: they are seen after a part of what is left.
  bytes_left_ = all < most_bytes_ ? (most_bytes_ - all) / 4 : 0;
}

std::optional<fs::path> cache_folder(const std::string& name) {
  const auto variable = [](const char* of) -> std::string_view {
    const char* value = std::getenv(of);
    return value == nullptr ? "" : value;
  };
  if (const std::string_view chosen = variable("THUNDER_CACHE_DIR"); !chosen.empty()) return fs::path(chosen) / name;
  // The XDG Base Directory Specification: relative paths are ignored.
  if (const std::string_view caches = variable("XDG_CACHE_HOME"); caches.starts_with('/')) {
    return fs::path(caches) / "thunder" / name;
  }
  const std::string_view home = variable("HOME");
  if (home.empty()) return std::nullopt;
  return fs::path(home) / ".cache" / "thunder" / name;
}

std::uint64_t cache_bytes() {
  const char* value = std::getenv("THUNDER_CACHE_SIZE");
  if (value == nullptr || *value == '\0') return kUsualBytes;
  const std::string_view text = value;
  std::uint64_t mebibytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), mebibytes);
  if (error != std::errc() || end != text.data() + text.size() || mebibytes >= std::uint64_t{1} << 40) {
    throw UserError(ErrorKind::kValue, "THUNDER_CACHE_SIZE: expected a number of MiB (0: keep nothing on disk), got '" +
                                           std::string(text) + "'");
  }
  return mebibytes << 20;
}

}  // namespace thunder
