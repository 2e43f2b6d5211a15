#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace thunder {

/// Contents by key in the files of a folder, which processes share and keep. Thread-safe. It only ever saves time: what
/// cannot be read, is damaged, or is another user's to change is not found, and what cannot be written is left out.
class DiskCache {
 public:
  /// Makes the folder when something is stored. Beyond so many bytes the contents that were used longest ago go.
  DiskCache(std::filesystem::path folder, std::uint64_t most_bytes);

  /// The content that was stored for an equal key, and counts as used now.
  [[nodiscard]] std::optional<std::string> find(std::string_view key) const;
  void store(std::string_view key, std::string_view content);

  /// The file of a key.
  [[nodiscard]] std::filesystem::path path_of(std::string_view key) const;

 private:
  void make_room(std::uint64_t bytes);

  const std::filesystem::path folder_;
  const std::uint64_t most_bytes_;
  std::mutex mutex_;
  std::optional<std::uint64_t> bytes_left_;  ///< that are written before the folder is counted again
};

/// The folder `name` of thunder's caches: in `$THUNDER_CACHE_DIR`, or else in `thunder` of the user's folder for
/// caches. nullopt: there is none.
[[nodiscard]] std::optional<std::filesystem::path> cache_folder(const std::string& name);
/// The bytes that such a cache may have: `$THUNDER_CACHE_SIZE` MiB, or 1 GiB; 0: nothing is kept. Throws UserError for
/// what is no number.
[[nodiscard]] std::uint64_t cache_bytes();

}  // namespace thunder
